"""The parts of a block besides attention: normalisation, feed-forward, and the block itself."""

import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.attention import MultiHeadAttention, Placement
from transformer.model.config import ModelConfig
from transformer.model.kv_cache import LayerCache


def norm(config: ModelConfig) -> nn.Module:
    """Normalisation over the width: LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, eps=1e-5, bias=config.bias)
    return nn.RMSNorm(config.d_model, eps=1e-6)


class FeedForward(nn.Module):
    """Two matrices with a non-linearity between them, applied to each token alone: (B, T, D) -> (B, T, D).

    gelu (Hendrycks & Gimpel 2016), relu2: ReLU squared (So et al. 2021), swiglu: a second matrix gates the
    first (Shazeer 2020).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind = config.feed_forward
        width = config.feed_forward_width
        self.up = nn.Linear(config.d_model, width, bias=config.bias)
        if self.kind == "swiglu":
            self.gate = nn.Linear(config.d_model, width, bias=config.bias)
        self.down = nn.Linear(width, config.d_model, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        hidden = self.up(x)
        if self.kind == "gelu":
            hidden = F.gelu(hidden)
        elif self.kind == "relu2":
            hidden = F.relu(hidden).square()
        else:
            hidden = F.silu(self.gate(x)) * hidden
        return self.down(hidden)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention between tokens, then a feed-forward layer on each; both add to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = MultiHeadAttention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, *, placement: Placement, cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), placement=placement, cache=cache))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))  # type: ignore[no-any-return]
