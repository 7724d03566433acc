from collections import Counter

import numpy as np
import pytest

from data.config import TASKS, DataConfig, TaskName
from data.errors import DataError
from data.tasks import ALPHABET, BRACKET_PAIRS, Task, make_task
from data.tokenizer import decode, encode, token_bytes

T = 61


def task_of(name: str, *, context_length: int = T, seed: int = 7, vocab_size: int | None = None) -> Task:
    return make_task(DataConfig(source=name, vocab_size=vocab_size), context_length=context_length, seed=seed)


def rows(name: TaskName, n: int = 200) -> list[tuple[str, list[bool]]]:
    """Texts, and for each of their characters whether it is predictable."""
    task = task_of(name)
    made = [task.row("train", number) for number in range(n)]
    return [(decode(task.tokenizer, ids), [False, *predictable.tolist()]) for ids, predictable in made]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("context_length", [17, 61, 128])
def test_a_row_is_full_and_of_known_symbols(name: str, context_length: int) -> None:
    task = task_of(name, context_length=context_length)

    for number in range(20):
        ids, predictable = task.row("train", number)

        assert (ids.shape, ids.dtype) == ((context_length + 1,), np.int64)
        assert (predictable.shape, predictable.dtype) == ((context_length,), np.bool_)
        assert 0 <= ids.min() <= ids.max() < task.tokenizer.get_vocab_size()
        assert encode(task.tokenizer, decode(task.tokenizer, ids)).tolist() == ids.tolist()
    assert token_bytes(task.tokenizer).tolist() == [1] * task.tokenizer.get_vocab_size()


@pytest.mark.parametrize("name", TASKS)
def test_a_row_depends_on_seed_split_and_number_alone(name: str) -> None:
    def row(seed: int, split: str, number: int) -> list[int]:
        return task_of(name, seed=seed).row(split, number)[0].tolist()

    task = task_of(name)
    in_reverse = [task.row("train", number)[0].tolist() for number in reversed(range(5))]

    assert in_reverse[::-1] == [row(7, "train", number) for number in range(5)]
    different = [row(7, "train", 0), row(7, "train", 1), row(7, "validation", 0), row(8, "train", 0)]
    assert len(set(map(tuple, different))) == 4
    assert row(2**63 - 1, "train", 2**40) != row(2**63 - 2, "train", 2**40)


@pytest.mark.parametrize(
    ("name", "answer"), [("copy", lambda word: word), ("reverse", lambda word: word[::-1]), ("sort", sorted)]
)
def test_after_the_bar_comes_the_answer_and_it_is_predictable(name: TaskName, answer: object) -> None:
    lengths = set()
    for text, predictable in rows(name):
        expected = []
        for example in text.split("\n"):
            word, bar, rest = example.partition("|")
            lengths.add(len(word))
            solved = "".join(answer(word))  # type: ignore[operator]
            assert rest == solved or (solved.startswith(rest) and text.endswith(example))
            expected += [False] * len(word + bar) + [True] * len(rest + "\n")
        assert predictable == expected[: len(text)]
    assert lengths >= set(range(1, 17))


def test_sums_are_right_and_predictable() -> None:
    operands = Counter()
    for text, predictable in rows("addition"):
        *whole, _ = text.split("\n")
        for example in whole:
            question, total = example.split("=")
            a, b = question.split("+")
            operands.update([int(a), int(b)])
            assert int(a) + int(b) == int(total)
            assert (a, b, total) == (str(int(a)), str(int(b)), str(int(total)))
        after_equals = [("=" in text[: index + 1].rsplit("\n", 1)[-1][:-1]) for index in range(len(text))]
        ends = [text[index] == "\n" for index in range(len(text))]
        assert predictable == [a or b for a, b in zip(after_equals, ends, strict=True)]
    assert (min(operands), max(operands)) == (0, 99)


def test_brackets_balance_and_are_predictable_once_all_have_opened() -> None:
    closing = dict(zip("([{<", ")]}>", strict=True))
    unclosed_at_the_end = Counter()
    for text, predictable in rows("brackets"):
        stack, opened = [], 0
        for index, sign in enumerate(text):
            assert predictable[index] == (opened == BRACKET_PAIRS)
            if sign in closing:
                stack.append(closing[sign])
                opened += 1
                if opened == BRACKET_PAIRS:
                    unclosed_at_the_end[len(stack)] += 1
            elif sign == "\n":
                assert (stack, opened) == ([], BRACKET_PAIRS)
                opened = 0
            else:
                assert sign == stack.pop()
            assert opened <= BRACKET_PAIRS
    assert set(unclosed_at_the_end) >= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("context_length", [16, 17, 61, 128, 129])
def test_induction_repeats_distinct_tokens_with_a_period_of_its_own(context_length: int) -> None:
    task, periods = task_of("induction", context_length=context_length), Counter()

    for number in range(2000 if context_length == 61 else 50):
        ids, predictable = task.row("train", number)
        period = next(p for p in range(1, context_length + 1) if (ids[p:] == ids[:-p]).all())
        periods[period] += 1
        assert len(set(ids[:period].tolist())) == period
        assert predictable.tolist() == [index >= period + 1 for index in range(1, context_length + 1)]

    assert set(periods) <= set(range(8, context_length // 2 + 1))
    if context_length == 61:
        assert set(periods) == set(range(8, 31))
        assert min(periods.values()) > 2000 / 23 / 2


def test_symbols_sort_by_code_point_and_tokens_follow_them() -> None:
    assert list(ALPHABET) == sorted(set(ALPHABET))
    assert len(ALPHABET) == 64
    assert task_of("induction").tokenizer.get_vocab_size() == 64
    assert task_of("copy", vocab_size=5).tokenizer.get_vocab() == {s: i for i, s in enumerate("\n01234|")}
    assert set(decode(task_of("sort", vocab_size=3).tokenizer, range(5))) == set("012|\n")


@pytest.mark.parametrize(
    ("name", "context_length", "vocab_size", "rule"),
    [
        ("induction", 15, None, "context_length 15 is too short: use 16 or more"),
        ("induction", 130, None, "up to 65 distinct tokens.*vocab_size is 64.*context_length of 129 or less"),
        (
            "induction",
            64,
            31,
            "up to 32 distinct.*vocab_size is 31.*context_length of 63 or less, or a vocab_size of 32",
        ),
        ("copy", 2, None, "up to 4 tokens long, too long for context_length 2: use 3 or more"),
        ("reverse", 1, None, "use 3 or more"),
        ("sort", 2, None, "use 3 or more"),
        ("addition", 8, None, "up to 10 tokens long.*use 9 or more"),
        ("brackets", 15, None, "up to 17 tokens long.*use 16 or more"),
    ],
)
def test_a_context_that_cannot_hold_the_task_is_an_error(
    name: str, context_length: int, vocab_size: int | None, rule: str
) -> None:
    with pytest.raises(DataError, match=rule):
        task_of(name, context_length=context_length, vocab_size=vocab_size)


@pytest.mark.parametrize(
    ("name", "context_length", "vocab_size"),
    [("induction", 16, 8), ("induction", 63, 31), ("copy", 3, 2), ("addition", 9, None), ("brackets", 16, None)],
)
def test_the_smallest_context_and_vocabulary_work(name: str, context_length: int, vocab_size: int | None) -> None:
    task = task_of(name, context_length=context_length, vocab_size=vocab_size)

    assert any(task.row("train", number)[1].any() for number in range(20))
