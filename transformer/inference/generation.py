"""Generating: a model continues token sequences, one token per row and step.

Rows are independent: a row of a batch gets the tokens that it would get alone. When a row fills the context, the
model goes on from the newest half of it (from `context_length` tokens of a longer prompt), read anew from position
0. The cache of keys and values only saves work; the policy is the same without it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.inference.sampling import Sampling, next_token
from transformer.model.kv_cache import KVCache
from transformer.model.transformer import Transformer, eval_mode


@dataclass
class Row:
    """One sequence being generated. Whoever reads it may set `finished`; the row then gets no more tokens."""

    tokens: list[int]
    generator: torch.Generator
    start: int
    """Index of the token that stands at position 0."""
    finished: bool = False


class Generation:
    """Rows that a model continues together."""

    def __init__(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        *,
        seeds: Sequence[int],
        sampling: Sampling,
        end_token: int | None = None,
        use_cache: bool = True,
    ) -> None:
        """Prompts may differ in length, and each row has its own seed. A row ends after `end_token` is drawn.

        Raises ValueError where a prompt is empty.
        """
        if not all(prompts):
            raise ValueError("a prompt needs at least one token")
        self.model, self.sampling, self.end_token = model, sampling, end_token
        self.context = model.config.context_length
        self.device = model.embedding.weight.device
        self.rows = [
            Row(list(prompt), torch.Generator().manual_seed(seed), start=max(0, len(prompt) - self.context))
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        self.cache: KVCache | None = None
        if use_cache:
            dtype = model.embedding.weight.dtype
            self.cache = KVCache.empty(model.config, len(self.rows), device=self.device, dtype=dtype)

    def steps(self, n_tokens: int) -> Iterator[list[tuple[int, int]]]:
        """Draw `n_tokens` tokens per row: yields index and new token of every unfinished row, step by step."""
        for _ in range(n_tokens):
            active = [index for index, row in enumerate(self.rows) if not row.finished]
            if not active:
                return
            drawn = []
            for index, logits in zip(active, self._logits(active), strict=True):
                row = self.rows[index]
                token = next_token(logits, row.tokens, self.sampling, row.generator)
                self._append(index, token)
                row.finished = token == self.end_token
                drawn.append((index, token))
            yield drawn

    def _append(self, index: int, token: int) -> None:
        """Add a token to a row; a full row begins again with the newest half of its context."""
        row = self.rows[index]
        row.tokens.append(token)
        if len(row.tokens) - row.start > self.context:
            row.start = len(row.tokens) - max(1, self.context // 2)
            if self.cache is not None:
                self.cache.lengths[index] = 0

    def _logits(self, active: list[int]) -> list[Tensor]:
        """Logits (V,) that follow each active row; rows with as many unread tokens go through the model together."""
        waiting: dict[int, list[int]] = {}
        for index in active:
            row, n_read = self.rows[index], 0 if self.cache is None else self.cache.lengths[index]
            waiting.setdefault(len(row.tokens) - row.start - n_read, []).append(index)
        logits: dict[int, Tensor] = {}
        with eval_mode(self.model):
            for n_new, indices in waiting.items():
                logits.update(zip(indices, self._read(indices, n_new), strict=True))
        return [logits[index] for index in active]

    def _read(self, indices: list[int], n_new: int) -> Tensor:
        """Read the last `n_new` tokens of some rows: logits after them (N, V)."""
        ids = torch.tensor([self.rows[index].tokens[-n_new:] for index in indices], device=self.device)
        if self.cache is None or len(indices) == len(self.rows):
            logits = self.model(ids, cache=self.cache, last_only=True)
        else:
            part = self.cache.select(indices)
            logits = self.model(ids, cache=part, last_only=True)
            self.cache.put(indices, part)
        return logits[:, -1].float().cpu()  # type: ignore[no-any-return]
