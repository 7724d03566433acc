"""Attention seen from the outside, by computing it again: nothing in the model or its training knows of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.model.attention import Placement, attention_logits, softmax
from transformer.model.kv_cache import KVCache
from transformer.model.layers import Block
from transformer.model.transformer import Transformer, eval_mode

MAX_BYTES = 4 * 2**20
"""Attention weights that `capture` computes at a time; a few megabytes stay in a processor's cache."""


@dataclass(frozen=True)
class Capture:
    """One layer while it reads some rows of a batch: b of its B rows."""

    layer: int
    rows: slice
    """Which rows of the batch."""
    logits: Tensor
    """Q Kᵀ / √d_k (b, H, T, T), the future included, without a positional bias."""
    visible: Tensor | None
    """True where a query may see a key, broadcast to (b, H, T, T); None where all is seen."""
    weights: Tensor
    """Attention weights (b, H, T, T), fp32."""
    outputs: Tensor
    """What every head says, weights times values: (b, H, T, K)."""
    attended: Tensor
    """The residual stream after attention: (b, T, D)."""
    output: Tensor
    """The residual stream after the whole block: (b, T, D)."""


def attention_maps(model: Transformer, ids: Tensor, *, cache: KVCache | None = None) -> Tensor:
    """The weight of every token on every token in every head: ids (B, T) -> (L, B, H, T, T), fp32, from query to key.

    Rows sum to 1 and the future is exactly 0. Dropout plays no part, and the model is left as it was found.
    With a cache, `ids` continue the tokens that it holds and are added to it: (L, B, H, T, S), S tokens in all.
    Raises ValueError where there are more tokens than the model's context has room for.
    """
    maps = []
    with eval_mode(model):
        positions, placement = model.place(ids, cache)
        x = model.embed(ids, positions)
        for index, block in enumerate(model.layers()):
            layer_cache = None if cache is None else cache.layer(index, positions)
            normed = block.attention_norm(x)
            maps.append(block.attention.weights(normed, placement=placement, cache=layer_cache))
            x = block(x, placement=placement, cache=layer_cache)
    if cache is not None:
        cache.advance(ids.shape[1])
    return torch.stack(maps)


def capture(model: Transformer, ids: Tensor, *, max_bytes: int = MAX_BYTES) -> Iterator[Capture]:
    """Everything that scores are made of, in one pass: ids (B, T) -> the layers of some rows, then of the next.

    A capture holds at most `max_bytes` of weights (but one row at least); drop it before the next but one.
    Raises ValueError where T exceeds the model's context.
    """
    n_rows = rows_that_fit(max_bytes, model.config.n_heads * ids.shape[1] ** 2)
    for start in range(0, len(ids), n_rows):
        rows = slice(start, min(start + n_rows, len(ids)))
        with eval_mode(model):
            positions, placement = model.place(ids[rows])
            x = model.embed(ids[rows], positions)
        for layer, block in enumerate(model.layers()):
            with eval_mode(model):  # for no longer than this: whoever iterates does so in a state of their own
                seen = capture_block(block, x, placement, layer=layer, rows=rows)
            x = seen.output
            yield seen


def capture_block(block: Block, x: Tensor, placement: Placement, *, layer: int, rows: slice) -> Capture:
    """A block's work step by step, without dropout: x (b, T, D) is what enters it."""
    queries, keys, values = block.attention.heads(block.attention_norm(x), placement=placement)
    logits = attention_logits(queries, keys)
    visible = placement.visible(x.shape[1], x.shape[1], x.device)
    weights = softmax(logits, placement)
    outputs = weights.to(values.dtype) @ values
    attended = x + block.attention.join(outputs)
    return Capture(layer, rows, logits, visible, weights, outputs, attended, after_attention(block, attended))


def after_attention(block: Block, attended: Tensor) -> Tensor:
    """The second half of a block, without dropout: (B, T, D) -> (B, T, D)."""
    return attended + block.feed_forward(block.feed_forward_norm(attended))  # type: ignore[no-any-return]


def rows_that_fit(max_bytes: int, numbers_per_row: int) -> int:
    """How many rows of so many fp32 numbers fit into `max_bytes`; at least one."""
    return max(1, max_bytes // (4 * numbers_per_row))
