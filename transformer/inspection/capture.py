"""Attention maps of a model, recomputed from the outside: nothing in the model or its training knows of it."""

import torch
from torch import Tensor

from transformer.model.transformer import Transformer, eval_mode


def attention_maps(model: Transformer, ids: Tensor) -> Tensor:
    """The weight of every token on every token in every head: ids (B, T) -> (L, B, H, T, T), fp32, from query to key.

    Rows sum to 1 and the future is exactly 0. Dropout plays no part, and the model is left as it was found.
    Raises ValueError where T exceeds the model's context.
    """
    maps = []
    with eval_mode(model):
        positions, placement = model.place(ids)
        x = model.embed(ids, positions)
        for block in model.layers():
            maps.append(block.attention.weights(block.attention_norm(x), placement=placement))
            x = block(x, placement=placement)
    return torch.stack(maps)
