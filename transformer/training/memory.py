"""An estimate of the memory that training takes."""

import torch

from transformer.model.attention import uses_fused_kernel
from transformer.model.config import ModelConfig
from transformer.training.config import TrainingConfig


def training_bytes(
    model: ModelConfig, training: TrainingConfig, *, n_parameters: int, vocab_size: int, device: torch.device
) -> int:
    """Bytes at the peak of a step, beside what Python and torch take themselves.

    Weights, gradients and two averages for each parameter, and for each token what the backward pass needs: per
    layer about 18 vectors of d_model and 3 of the feed-forward width, the attention weights where they are written
    out, and three rows of logits; all in fp32.
    """
    tokens = training.batch_size // training.gradient_accumulation * model.context_length
    fused = uses_fused_kernel(model.attention, model.dropout, device)
    weights = 0 if fused else 4 * model.n_heads * model.context_length
    per_layer = 18 * model.d_model + 3 * model.feed_forward_width + weights
    return 4 * (4 * n_parameters + tokens * (model.n_layers * per_layer + 3 * vocab_size))
