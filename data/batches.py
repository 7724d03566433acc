"""Token ids -> batches of inputs and targets, (B, T) each, in the order of a seed and with a position to go on from."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from data.errors import DataError
from data.storage import StoredIds
from data.tasks import Task

IGNORED = -100
"""Target that is not scored, as in torch's cross entropy."""

EVALUATION_ROWS = 512
"""Rows of a task that an evaluation scores."""

EvaluationBatch = tuple[Tensor, Tensor, Tensor | None]


def check_length(n_tokens: int, context_length: int, *, name: str = "the training text") -> None:
    """Raises DataError if a text is too short for one window: its context and the token after it."""
    if n_tokens < context_length + 1:
        remedy = f"the largest that works is {n_tokens - 1}" if n_tokens > 1 else "give more text"
        raise DataError(
            f"{name} has {n_tokens} tokens, but context_length {context_length} needs {context_length + 1}: {remedy}"
        )


class WindowBatches:
    """Windows of a text in random order, without end.

    Every epoch moves the borders of the windows by an offset of its own and visits each window once, in an order
    of its own. A batch that reaches the end of an epoch goes on in the next.
    """

    def __init__(self, ids: StoredIds, *, context_length: int, batch_size: int, seed: int) -> None:
        check_length(len(ids), context_length)
        self._ids = ids
        self._context_length = context_length
        self._batch_size = batch_size
        self._seed = seed
        self.restore({"epoch": 0, "window": 0})

    @property
    def windows_per_epoch(self) -> int:
        """Windows of an epoch that begins with the first token; another offset may leave one less."""
        return (len(self._ids) - 1) // self._context_length

    @property
    def position(self) -> dict[str, int]:
        """The epoch, from 0, and the windows of it that were visited."""
        return {"epoch": self._epoch, "window": self._window}

    def restore(self, position: dict[str, int]) -> None:
        """Go on from a position."""
        self._epoch, self._window = position["epoch"], position["window"]
        self._starts = self._shuffled_starts()

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets, (B, T) int64; a target is the token after its input."""
        starts = np.array([self._next_start() for _ in range(self._batch_size)])
        rows = self._ids[starts[:, None] + np.arange(self._context_length + 1)]
        return _inputs_and_targets(rows)

    def _next_start(self) -> int:
        if self._window == len(self._starts):
            self.restore({"epoch": self._epoch + 1, "window": 0})
        self._window += 1
        return int(self._starts[self._window - 1])

    def _shuffled_starts(self) -> npt.NDArray[np.integer]:
        rng = np.random.Generator(np.random.Philox(key=[self._seed, self._epoch]))
        targets = len(self._ids) - 1
        offset = int(rng.integers(min(self._context_length - 1, targets - self._context_length), endpoint=True))
        dtype: type[np.integer] = np.uint32 if targets < 2**32 else np.int64  # 1 GB of text has millions of windows
        starts = np.arange(offset, targets - self._context_length + 1, self._context_length, dtype=dtype)
        rng.shuffle(starts)
        return starts


class TaskBatches:
    """Rows of a task in their order, without end; no row comes twice."""

    def __init__(self, task: Task, *, batch_size: int) -> None:
        self._task = task
        self._batch_size = batch_size
        self._row = 0

    @property
    def position(self) -> dict[str, int]:
        """The number of the next row."""
        return {"row": self._row}

    def restore(self, position: dict[str, int]) -> None:
        """Go on from a position."""
        self._row = position["row"]

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets, (B, T) int64; all targets, not only the predictable ones."""
        numbers = range(self._row, self._row + self._batch_size)
        self._row += self._batch_size
        return _inputs_and_targets(np.stack([self._task.row("train", number)[0] for number in numbers]))


def evaluation_windows(
    ids: StoredIds,
    *,
    context_length: int,
    batch_size: int,
    stride: int | None = None,
    max_tokens: int | None = None,
) -> Iterator[EvaluationBatch]:
    """Batches (inputs, targets, None) that score every token but the first exactly once, the short tail included.

    A window begins `stride` tokens after the last one (None: context_length). Where windows overlap, targets that
    were scored before are IGNORED. max_tokens: score only so many targets, the first. Raises DataError for ids that
    have no target and for a stride that would leave tokens out.
    """
    stride = context_length if stride is None else stride
    if not 1 <= stride <= context_length:
        raise DataError(f"stride {stride} must be between 1 and the context length, {context_length}")
    targets = len(ids) - 1 if max_tokens is None else min(len(ids) - 1, max_tokens)
    if targets < 1:
        raise DataError(f"{len(ids)} tokens cannot be scored; at least 2 are needed, one to predict the other")
    n_full = max(0, (targets - context_length) // stride + 1)
    starts = range(0, n_full * stride, stride)
    return _windows(ids, starts, targets, context_length=context_length, stride=stride, batch_size=batch_size)


def evaluation_rows(
    task: Task, *, batch_size: int, n_rows: int = EVALUATION_ROWS
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches (inputs, targets, predictable), (B, T) each, of a task's validation rows."""
    for first in range(0, n_rows, batch_size):
        rows = [task.row("validation", number) for number in range(first, min(first + batch_size, n_rows))]
        inputs, targets = _inputs_and_targets(np.stack([ids for ids, _ in rows]))
        yield inputs, targets, torch.from_numpy(np.stack([predictable for _, predictable in rows]))


def _windows(
    ids: StoredIds, starts: range, targets: int, *, context_length: int, stride: int, batch_size: int
) -> Iterator[EvaluationBatch]:
    """Full windows in batches, then the window of the tail, which is shorter, by itself."""
    overlap = context_length - stride
    for first in range(0, len(starts), batch_size):
        batch = starts[first : first + batch_size]
        rows = ids[np.array(batch)[:, None] + np.arange(context_length + 1)]
        yield _scored(rows, [0 if start == 0 else overlap for start in batch])
    scored = starts[-1] + context_length if starts else 0
    if scored < targets:
        start = starts.stop if starts else 0
        yield _scored(ids[None, start : targets + 1], [scored - start])


def _scored(rows: StoredIds, already: Iterable[int]) -> EvaluationBatch:
    inputs, targets = _inputs_and_targets(rows)
    for row, count in enumerate(already):
        targets[row, :count] = IGNORED
    return inputs, targets, None


def _inputs_and_targets(rows: StoredIds) -> tuple[Tensor, Tensor]:
    """Rows (B, T+1) -> the first T and the last T of each; neither shares memory with the other."""
    inputs, targets = (np.array(part, dtype=np.int64) for part in (rows[:, :-1], rows[:, 1:]))
    return torch.from_numpy(inputs), torch.from_numpy(targets)
