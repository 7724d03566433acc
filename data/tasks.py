r"""Generated tasks in which attention can be understood: each has its own symbols, one token per symbol.

    copy       abc|abc\n             addition    12+34=46\n
    reverse    abc|cba\n             brackets    ([]{})…\n, of 8 pairs
    sort       cab|abc\n             induction   random distinct tokens, repeated to the end of the row

A row is filled with examples one after another, the last cut off. Row n depends on (task, seed, split, n) alone.
A target is *predictable* where the row's earlier tokens decide it: a model that has learned the task cannot miss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from data.config import DataConfig, TaskName
from data.errors import DataError
from data.tokenizer import char_tokenizer

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz{}"
"""The symbols of copy, reverse, sort and induction, in the order of their code points, which is that of sort."""

LONGEST_WORD = 16
"""Symbols that copy, reverse and sort show, at most; their number is uniform in 1 … this."""

LARGEST_OPERAND = 99
"""Both numbers of an addition are uniform in 0 … this."""

BRACKETS = ("()", "[]", "{}", "<>")
BRACKET_PAIRS = 8
"""Every example has exactly so many, hence only closing brackets can follow the last opening one."""

SHORTEST_PERIOD = 8

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")

Rng = np.random.Generator
Row = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Example:
    """A text whose characters from `answer` on are predictable."""

    text: str
    answer: int


@dataclass(frozen=True)
class Task:
    """Rows of one task for one context length, T; see `make_task`."""

    name: TaskName
    context_length: int
    seed: int
    tokenizer: Tokenizer
    fill_row: Callable[[Rng], Row]

    def row(self, split: Split, number: int) -> Row:
        """Ids (T+1,) of row `number`, and which targets, the ids from the second on, are predictable (T,)."""
        stream = np.random.Philox(key=[self.seed, SPLITS.index(split)], counter=[0, 0, 0, number])
        return self.fill_row(np.random.Generator(stream))


def make_task(config: DataConfig, *, context_length: int, seed: int) -> Task:
    """The task that a configuration names. Raises DataError if the context cannot hold one example of it."""
    name = config.task
    if name is None:
        raise ValueError(f"{config.source} is no task")
    symbols = ALPHABET[: config.task_symbols]
    if name == "induction":
        _check_induction(context_length, len(symbols))
        tokenizer = char_tokenizer(symbols)
        return Task(name, context_length, seed, tokenizer, _induction(context_length, len(symbols)))
    make_example, characters, longest = _examples(name, symbols, context_length)
    if context_length + 1 < longest:
        raise DataError(
            f"an example of {name} is up to {longest} tokens long, too long for context_length {context_length}: "
            f"use {longest - 1} or more"
        )
    tokenizer = char_tokenizer(characters)
    return Task(name, context_length, seed, tokenizer, _packed(make_example, tokenizer, context_length))


def copy_example(rng: Rng, symbols: str, longest: int) -> Example:
    r"""`abc|abc\n`: after the bar, the same symbols."""
    word = random_word(rng, symbols, longest)
    return Example(f"{word}|{word}\n", len(word) + 1)


def reverse_example(rng: Rng, symbols: str, longest: int) -> Example:
    r"""`abc|cba\n`: after the bar, the symbols from the last to the first."""
    word = random_word(rng, symbols, longest)
    return Example(f"{word}|{word[::-1]}\n", len(word) + 1)


def sort_example(rng: Rng, symbols: str, longest: int) -> Example:
    r"""`cab|abc\n`: after the bar, the symbols in order."""
    word = random_word(rng, symbols, longest)
    return Example(f"{word}|{''.join(sorted(word))}\n", len(word) + 1)


def random_word(rng: Rng, symbols: str, longest: int) -> str:
    """1 … longest random symbols."""
    length = rng.integers(1, longest, endpoint=True)
    return "".join(symbols[index] for index in rng.integers(len(symbols), size=length).tolist())


def addition_example(rng: Rng) -> Example:
    r"""`12+34=46\n`: after the equals sign, the sum."""
    a, b = rng.integers(0, LARGEST_OPERAND, endpoint=True, size=2).tolist()
    question = f"{a}+{b}="
    return Example(f"{question}{a + b}\n", len(question))


def brackets_example(rng: Rng) -> Example:
    """Balanced brackets; where both are possible, one opens or closes with equal chance.

    After the last pair has opened, the open ones close from the innermost to the outermost: the answer.
    """
    pairs = iter(rng.integers(len(BRACKETS), size=BRACKET_PAIRS).tolist())
    coins = iter(rng.integers(2, size=2 * BRACKET_PAIRS).tolist())
    text, unclosed, opened, answer = "", "", 0, 0
    while opened < BRACKET_PAIRS or unclosed:
        if opened < BRACKET_PAIRS and (not unclosed or next(coins)):
            pair = BRACKETS[next(pairs)]
            text, unclosed, opened = text + pair[0], pair[1] + unclosed, opened + 1
            answer = len(text)
        else:
            text, unclosed = text + unclosed[0], unclosed[1:]
    return Example(text + "\n", answer)


def _examples(name: TaskName, symbols: str, context_length: int) -> tuple[Callable[[Rng], Example], str, int]:
    """How a task's examples are made, the characters they are of, and the tokens of the longest."""
    if name == "addition":
        return addition_example, "0123456789+=\n", len(f"99+99={2 * LARGEST_OPERAND}\n")
    if name == "brackets":
        return brackets_example, "".join(BRACKETS) + "\n", 2 * BRACKET_PAIRS + 1
    longest = max(1, min(LONGEST_WORD, (context_length - 1) // 2))
    make = {"copy": copy_example, "reverse": reverse_example, "sort": sort_example}[name]
    return lambda rng: make(rng, symbols, longest), symbols + "|\n", 2 * longest + 2


def _packed(make_example: Callable[[Rng], Example], tokenizer: Tokenizer, context_length: int) -> Callable[[Rng], Row]:
    ids_of = tokenizer.get_vocab()

    def fill(rng: Rng) -> Row:
        ids: list[int] = []
        predictable: list[bool] = []
        while len(ids) <= context_length:
            example = make_example(rng)
            ids += [ids_of[character] for character in example.text]
            predictable += [index >= example.answer for index in range(len(example.text))]
        return np.array(ids[: context_length + 1]), np.array(predictable[1 : context_length + 1])

    return fill


def _induction(context_length: int, n_symbols: int) -> Callable[[Rng], Row]:
    """Rows with a period p of their own: the first p tokens are distinct, and token i is token i - p after that.

    Token p is the first repetition, which cannot be foreseen; from p + 1 on, all are predictable.
    """

    def fill(rng: Rng) -> Row:
        period = int(rng.integers(SHORTEST_PERIOD, context_length // 2, endpoint=True))
        index = np.arange(context_length + 1)
        return rng.permutation(n_symbols)[index % period], index[1:] >= period + 1

    return fill


def _check_induction(context_length: int, n_symbols: int) -> None:
    if context_length < 2 * SHORTEST_PERIOD:
        raise DataError(
            f"induction repeats {SHORTEST_PERIOD} tokens or more, so context_length {context_length} is too short: "
            f"use {2 * SHORTEST_PERIOD} or more"
        )
    longest = context_length // 2
    if n_symbols < longest:
        raise DataError(
            f"induction repeats up to {longest} distinct tokens, half of context_length {context_length}, but "
            f"vocab_size is {n_symbols}: use a context_length of {2 * n_symbols + 1} or less, or a vocab_size of "
            f"{longest} or more (at most {len(ALPHABET)})"
        )
