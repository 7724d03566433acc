"""Keys and values of the tokens that a model has read, so that generating a token costs one token's work."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.model.config import ModelConfig


@dataclass
class KVCache:
    """Room for `context_length` keys and values of every layer, (L, B, H, C, K) each, and each row's length."""

    keys: Tensor
    values: Tensor
    lengths: list[int]

    @classmethod
    def empty(cls, config: ModelConfig, batch_size: int, *, device: torch.device, dtype: torch.dtype) -> "KVCache":
        """A cache that holds no token yet."""
        shape = (config.n_layers, batch_size, config.kv_heads, config.context_length, config.head_dim)
        keys, values = (torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        return cls(keys, values, [0] * batch_size)

    def positions(self, n_new: int) -> Tensor:
        """Where each row's next tokens stand: (B, n_new)."""
        starts = torch.tensor(self.lengths, device=self.keys.device)
        return starts[:, None] + torch.arange(n_new, device=self.keys.device)

    def layer(self, index: int, positions: Tensor) -> "LayerCache":
        """The part of one layer, ready to take the keys and values at `positions` (B, T)."""
        n_slots = max(self.lengths) + positions.shape[1]
        return LayerCache(self.keys[index], self.values[index], positions, n_slots)

    def advance(self, n_new: int) -> None:
        """Count the tokens that every layer has just taken."""
        self.lengths = [length + n_new for length in self.lengths]

    def put(self, rows: list[int], other: "KVCache") -> None:
        """Replace the given rows by those of `other`, in order."""
        self.keys[:, rows] = other.keys
        self.values[:, rows] = other.values
        for row, length in zip(rows, other.lengths, strict=True):
            self.lengths[row] = length

    def select(self, rows: list[int]) -> "KVCache":
        """A copy of the given rows, in order."""
        return KVCache(self.keys[:, rows], self.values[:, rows], [self.lengths[row] for row in rows])


@dataclass(frozen=True)
class LayerCache:
    """One layer's keys and values (B, H, C, K), and the slots that the next ones go to."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    n_slots: int

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (B, H, T, K) new keys and values; return all of them, (B, H, n_slots, K).

        A row shorter than n_slots has stale slots at its end: they stand after its queries, so the causal mask
        hides them.
        """
        rows = torch.arange(len(self.positions), device=self.positions.device)[:, None]
        self.keys[rows, :, self.positions] = keys.transpose(1, 2).to(self.keys.dtype)
        self.values[rows, :, self.positions] = values.transpose(1, 2).to(self.values.dtype)
        return self.keys[:, :, : self.n_slots], self.values[:, :, : self.n_slots]
