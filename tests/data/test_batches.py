import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.batches import (
    EVALUATION_ROWS,
    IGNORED,
    TaskBatches,
    WindowBatches,
    check_length,
    evaluation_rows,
    evaluation_windows,
)
from data.config import DataConfig
from data.errors import DataError
from data.tasks import make_task

T, B = 7, 5


def windows(n: int, *, context_length: int = T, batch_size: int = B, seed: int = 3) -> WindowBatches:
    """Batches of a text whose tokens are their own positions."""
    ids = np.arange(n, dtype=np.uint32)
    return WindowBatches(ids, context_length=context_length, batch_size=batch_size, seed=seed)


def epoch(batches: WindowBatches) -> list[int]:
    """First tokens of the windows of the epoch that begins now; the batch size must be 1."""
    number, starts = batches.position["epoch"], []
    while True:
        here = batches.position
        inputs, _ = batches.next_batch()
        if batches.position["epoch"] != number and starts:
            batches.restore(here)
            batches.restore({"epoch": number + 1, "window": 0})
            return starts
        number = batches.position["epoch"]
        starts.append(int(inputs[0, 0]))


def test_targets_are_the_next_tokens() -> None:
    inputs, targets = windows(211).next_batch()

    assert inputs.shape == targets.shape == (B, T)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(T))


@pytest.mark.parametrize("n", [T + 1, T + 2, 2 * T, 2 * T + 1, 3 * T + 2, 211])
def test_a_window_is_visited_once_an_epoch(n: int) -> None:
    batches, offsets = windows(n, batch_size=1), set()

    for _ in range(30):
        starts = sorted(epoch(batches))
        offset = starts[0]
        offsets.add(offset)
        assert starts == list(range(offset, n - T, T))
        assert len(starts) in (batches.windows_per_epoch, batches.windows_per_epoch - 1)

    assert offsets <= set(range(min(T - 1, n - 1 - T) + 1))
    assert len(offsets) > 1 or n == T + 1


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    batches = windows(2011, batch_size=1)
    orders = [epoch(batches) for _ in range(3)] + [epoch(windows(2011, batch_size=1, seed=4))]

    steps = [tuple(np.diff(order)) for order in orders]
    assert len(set(steps)) == 4
    assert all(order != sorted(order) for order in orders)


@pytest.mark.parametrize("batch_size", [2, 5, 31, 67])
def test_a_batch_goes_on_in_the_next_epoch(batch_size: int) -> None:
    single = windows(211, batch_size=1)
    expected = [int(single.next_batch()[0][0, 0]) for _ in range(4 * batch_size)]

    batches = windows(211, batch_size=batch_size)
    found = [start for _ in range(4) for start in batches.next_batch()[0][:, 0].tolist()]

    assert found == expected


@pytest.mark.parametrize("steps", [0, 1, 5, 6, 7, 40])
def test_a_restored_position_goes_on_as_if_unbroken(steps: int) -> None:
    task = make_task(DataConfig(source="copy"), context_length=T, seed=3)
    pairs: list[tuple[WindowBatches | TaskBatches, WindowBatches | TaskBatches]] = [
        (windows(211), windows(211)),
        (TaskBatches(task, batch_size=B), TaskBatches(task, batch_size=B)),
    ]
    for unbroken, resumed in pairs:
        for _ in range(steps):
            unbroken.next_batch()

        resumed.restore(json.loads(json.dumps(unbroken.position)))

        for _ in range(9):
            expected, found = unbroken.next_batch(), resumed.next_batch()
            assert all(map(torch.equal, expected, found))
        assert unbroken.position == resumed.position


def test_one_token_more_than_the_context_is_enough() -> None:
    inputs, targets = windows(T + 1).next_batch()

    assert inputs.tolist() == [list(range(T))] * B
    assert targets.tolist() == [list(range(1, T + 1))] * B


@pytest.mark.parametrize(
    ("n", "rule"),
    [
        (T, "has 7 tokens, but context_length 7 needs 8: the largest that works is 6"),
        (2, "the largest that works is 1"),
        (1, "has 1 tokens.*give more text"),
        (0, "has 0 tokens.*give more text"),
    ],
)
def test_a_text_shorter_than_a_window_is_an_error_with_both_numbers(n: int, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        windows(n)
    with pytest.raises(DataError, match=f"the validation text {rule}" if rule.startswith("has") else rule):
        check_length(n, T, name="the validation text")


@given(
    st.integers(2, 90),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(1, 20) | st.none(),
    st.integers(1, 100) | st.none(),
)
def test_every_token_but_the_first_is_scored_once(
    n: int, context_length: int, batch_size: int, stride: int | None, max_tokens: int | None
) -> None:
    stride = min(stride, context_length) if stride else None
    scored: Counter[int] = Counter()
    batches = evaluation_windows(
        np.arange(n, dtype=np.uint16),
        context_length=context_length,
        batch_size=batch_size,
        stride=stride,
        max_tokens=max_tokens,
    )

    for inputs, targets, predictable in batches:
        assert predictable is None
        assert inputs.shape == targets.shape
        assert 1 <= inputs.shape[0] <= batch_size
        assert inputs.shape[1] <= context_length
        counted = targets != IGNORED
        assert torch.equal(targets[counted], inputs[counted] + 1)
        assert counted[:, -1].all()
        scored.update(targets[counted].tolist())

    assert scored == Counter(range(1, min(n, (max_tokens or n) + 1)))


@pytest.mark.parametrize("stride", [1, 2, 6, 7])
def test_a_stride_gives_each_token_at_least_the_rest_of_the_context(stride: int) -> None:
    for inputs, targets, _ in evaluation_windows(np.arange(53), context_length=T, batch_size=3, stride=stride):
        for row_inputs, row_targets in zip(inputs, targets, strict=True):
            scored = row_targets != IGNORED
            past = torch.arange(1, len(row_inputs) + 1)[scored]
            assert (past >= torch.minimum(row_targets[scored], torch.tensor(T - stride + 1))).all()


@pytest.mark.parametrize("stride", [0, -1, T + 1])
def test_a_stride_that_leaves_tokens_out_is_an_error(stride: int) -> None:
    with pytest.raises(DataError, match=f"stride {stride} must be between 1 and the context length, 7"):
        evaluation_windows(np.arange(53), context_length=T, batch_size=B, stride=stride)


@pytest.mark.parametrize("n", [0, 1])
def test_a_text_without_targets_cannot_be_scored(n: int) -> None:
    with pytest.raises(DataError, match=f"{n} tokens cannot be scored"):
        evaluation_windows(np.arange(n), context_length=T, batch_size=B)


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_the_rows_of_a_task_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    task = make_task(DataConfig(source="induction"), context_length=17, seed=3)

    found = list(evaluation_rows(task, batch_size=batch_size, n_rows=23))

    inputs, targets, predictable = (torch.cat(parts) for parts in zip(*found, strict=True))
    for number in range(23):
        ids, mask = task.row("validation", number)
        assert inputs[number].tolist() == ids[:-1].tolist()
        assert targets[number].tolist() == ids[1:].tolist()
        assert predictable[number].tolist() == mask.tolist()
    assert inputs.shape == predictable.shape == (23, 17)
    assert predictable.dtype == torch.bool


def test_an_evaluation_scores_all_its_rows() -> None:
    task = make_task(DataConfig(source="addition"), context_length=17, seed=3)

    assert sum(len(inputs) for inputs, _, _ in evaluation_rows(task, batch_size=100)) == EVALUATION_ROWS


def test_training_rows_of_a_task_follow_each_other() -> None:
    task = make_task(DataConfig(source="sort"), context_length=17, seed=3)
    batches = TaskBatches(task, batch_size=B)

    for first in (0, B, 2 * B):
        inputs, targets = batches.next_batch()
        rows = np.stack([task.row("train", number)[0] for number in range(first, first + B)])
        assert inputs.tolist() == rows[:, :-1].tolist()
        assert targets.tolist() == rows[:, 1:].tolist()
