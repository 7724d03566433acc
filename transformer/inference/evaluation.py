"""The exact loss of a model on text: every token counts once and alike."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from transformer.model.transformer import Transformer, eval_mode

IGNORED = -100
"""Target of a place that is not scored."""

EvaluationBatch = tuple[Tensor, Tensor, Tensor | None]
"""Inputs and targets (B, T), and where it matters which targets can be predicted (B, T), as booleans."""


@dataclass(frozen=True)
class TextSizes:
    """Length of each token's text, (V,) each; 0 for special tokens."""

    n_bytes: Tensor
    n_characters: Tensor


@dataclass(frozen=True)
class Evaluation:
    """What a model scores on some text. Loss is in nats per token."""

    loss: float
    tokens: int
    bits_per_byte: float | None = None
    bits_per_character: float | None = None
    accuracy: float | None = None

    @property
    def perplexity(self) -> float:
        """exp(loss): the number of equally likely tokens that the model hesitates between."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def evaluate(model: Transformer, batches: Iterable[EvaluationBatch], *, sizes: TextSizes | None = None) -> Evaluation:
    """Score every target but IGNORED ones, each with the same weight whatever the shape of its batch.

    With `sizes`, losses are also given a byte and a character of the scored text; with batches that say which
    targets can be predicted, the share of those that the model's first choice hits.
    Raises ValueError where nothing is scored.
    """
    total, tokens, n_bytes, n_characters, hits, predictable_tokens = 0.0, 0, 0, 0, 0, 0
    device = model.embedding.weight.device
    with eval_mode(model):
        for inputs, targets, predictable in batches:
            logits = model(inputs.to(device)).float()
            flat = targets.to(device).flatten()
            losses = F.cross_entropy(logits.flatten(0, 1), flat, ignore_index=IGNORED, reduction="none")
            total += losses.cpu().double().sum().item()  # mps has no double precision
            scored = targets[targets != IGNORED]
            tokens += scored.numel()
            if sizes is not None:
                n_bytes += int(sizes.n_bytes[scored].sum())
                n_characters += int(sizes.n_characters[scored].sum())
            if predictable is not None:
                hits += int((logits.argmax(dim=-1).cpu() == targets)[predictable].sum())
                predictable_tokens += int(predictable.sum())
    if not tokens:
        raise ValueError("there is no token to score")
    return Evaluation(
        loss=total / tokens,
        tokens=tokens,
        bits_per_byte=total / math.log(2) / n_bytes if n_bytes else None,
        bits_per_character=total / math.log(2) / n_characters if n_characters else None,
        accuracy=hits / predictable_tokens if predictable_tokens else None,
    )
