"""Multi-head attention, written out as in "Attention Is All You Need" (Vaswani et al. 2017, section 3.2).

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
    head_i             = Attention(X W_i^Q, Y W_i^K, Y W_i^V)
    MultiHead(X, Y)    = Concat(head_1, ..., head_h) W^O

Queries come from X, keys and values from Y; in self-attention Y is X. A mask says which keys a query may see.
Shapes: B batch, T queries, S keys, D d_model, H heads, K head_dim.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.config import AttentionKind, ModelConfig
from transformer.model.kv_cache import LayerCache
from transformer.model.positions import Rotation, rotate


@dataclass(frozen=True)
class Placement:
    """Which keys each query sees, and how their positions count. By default all of them, and not at all.

    mask:           True where a query may see a key, broadcast to (B, H, T, S)
    is_causal:      instead of a mask: query i sees the keys up to i (T = S)
    bias:           added to the attention logits, broadcast to (B, H, T, S)
    query_rotation: how far queries are turned; key_rotation: likewise for keys
    """

    mask: Tensor | None = None
    is_causal: bool = False
    bias: Tensor | None = None
    query_rotation: Rotation | None = None
    key_rotation: Rotation | None = None

    def visible(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """The mask, made explicit if it is causal: broadcast to (B, H, T, S), or None where all is seen."""
        if not self.is_causal:
            return self.mask
        return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril()


def attention_logits(queries: Tensor, keys: Tensor) -> Tensor:
    """Q Kᵀ / √d_k: (B, H, T, K), (B, H, S, K) -> (B, H, T, S).

    Queries are scaled before the product, so that half precision stays finite.
    """
    return (queries / math.sqrt(queries.shape[-1])) @ keys.mT


def softmax(logits: Tensor, placement: Placement) -> Tensor:
    """The weights that logits give to the keys a query sees, in fp32: (B, H, T, S) -> (B, H, T, S).

    Rows sum to 1 and what the mask hides is exactly 0; a query that may see nothing gets zeros.
    """
    if placement.bias is not None:
        logits = logits + placement.bias
    mask = placement.visible(logits.shape[-2], logits.shape[-1], logits.device)
    if mask is None:
        return logits.softmax(dim=-1, dtype=torch.float32)
    weights = logits.masked_fill(~mask, -math.inf).softmax(dim=-1, dtype=torch.float32)
    return weights.masked_fill(~mask, 0.0)


def attention_weights(queries: Tensor, keys: Tensor, placement: Placement) -> Tensor:
    """softmax(Q Kᵀ / √d_k): (B, H, T, K), (B, H, S, K) -> (B, H, T, S)."""
    return softmax(attention_logits(queries, keys), placement)


def explicit_attention(
    queries: Tensor, keys: Tensor, values: Tensor, placement: Placement, *, dropout: float = 0.0
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V, step by step: (B, H, T, K), (B, H, S, K) x2 -> (B, H, T, K)."""
    weights = attention_weights(queries, keys, placement).to(values.dtype)
    return F.dropout(weights, dropout) @ values


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, placement: Placement, *, dropout: float = 0.0
) -> Tensor:
    """The same in one kernel of torch, which keeps no weights: (B, H, T, K), (B, H, S, K) x2 -> (B, H, T, K)."""
    is_causal, mask = placement.is_causal, placement.mask
    if placement.bias is not None:
        visible = placement.visible(queries.shape[-2], keys.shape[-2], queries.device)
        mask = placement.bias.to(queries.dtype)
        mask = mask if visible is None else mask.masked_fill(~visible, -math.inf)
        is_causal = False
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=is_causal, dropout_p=dropout)


def uses_fused_kernel(kind: AttentionKind, dropout: float, device: torch.device) -> bool:
    """What `attention:` means. `auto` avoids torch's CPU kernel where weights are dropped: that has no fast path."""
    if kind == "auto":
        return not (dropout and device.type == "cpu")
    return kind == "fused"


class MultiHeadAttention(nn.Module):
    """Attention of several heads side by side, between four projections."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.group_size = config.n_heads // config.kv_heads
        self.dropout = config.dropout
        self.qk_norm = config.qk_norm
        self.kind = config.attention
        kv_width = config.kv_heads * config.head_dim
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.key = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.value = nn.Linear(config.d_model, kv_width, bias=config.bias)
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, *, placement: Placement, cache: LayerCache | None = None
    ) -> Tensor:
        """Attend from x to memory, or to itself: (B, T, D), (B, S, D) -> (B, T, D).

        A cache adds its keys and values before those of x, and keeps all of them.
        """
        queries, keys, values = self.heads(x, memory, placement=placement, cache=cache)
        dropout = self.dropout if self.training else 0.0
        fused = uses_fused_kernel(self.kind, dropout, x.device)
        attend = fused_attention if fused else explicit_attention
        return self.join(attend(queries, keys, values, placement, dropout=dropout))

    def weights(
        self, x: Tensor, memory: Tensor | None = None, *, placement: Placement, cache: LayerCache | None = None
    ) -> Tensor:
        """The weights that `forward` uses, before dropout: (B, T, D), (B, S, D) -> (B, H, T, S) in fp32."""
        queries, keys, _ = self.heads(x, memory, placement=placement, cache=cache)
        return attention_weights(queries, keys, placement)

    def heads(
        self, x: Tensor, memory: Tensor | None = None, *, placement: Placement, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project and split into heads: queries (B, H, T, K), keys and values (B, H, S, K)."""
        memory = x if memory is None else memory
        queries = self._split(self.query(x))
        keys, values = self._split(self.key(memory)), self._split(self.value(memory))
        if self.qk_norm:
            queries, keys = F.rms_norm(queries, (self.head_dim,)), F.rms_norm(keys, (self.head_dim,))
        if placement.query_rotation is not None:
            queries = rotate(queries, placement.query_rotation)
        if placement.key_rotation is not None:
            keys = rotate(keys, placement.key_rotation)
        if cache is not None:
            keys, values = cache.append(keys, values)
        if self.group_size > 1:  # each key and value head serves a group of query heads
            keys, values = (kv.repeat_interleave(self.group_size, dim=1) for kv in (keys, values))
        return queries, keys, values

    def join(self, heads: Tensor) -> Tensor:
        """Concat(head_1, ..., head_h) W^O: (B, H, T, K) -> (B, T, D)."""
        return self.output(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H·K) -> (B, H, T, K)."""
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)
