"""Generation against a loop that keeps no cache and reads one row at a time."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from tokenizers import Tokenizer

from data.tokenizer import byte_tokenizer, char_tokenizer
from tests.model.test_attention import POSITIONS, awakened
from transformer.inference.generation import Generation
from transformer.inference.sampling import Sampling
from transformer.inference.text import END_OF_TEXT, TextGeneration, start_token
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer

CONTEXT = 6
SMALL = ModelConfig(d_model=16, n_heads=4, n_layers=2, context_length=CONTEXT)
PROMPTS = [[3], [1, 2, 5], list(range(6)), [(7 * i) % 13 for i in range(9)], [4, 4, 9]]
GREEDY = Sampling(temperature=0.0)
WARM = Sampling(temperature=1.3, top_p=0.95)


def generated(
    model: Transformer, prompts: Sequence[Sequence[int]], n_tokens: int, *, sampling: Sampling = WARM, **options: object
) -> list[list[int]]:
    """The new tokens of every row; row i has seed 100 + its first token."""
    seeds = [100 + prompt[0] for prompt in prompts]
    generation = Generation(model, prompts, seeds=seeds, sampling=sampling, **options)
    rows: list[list[int]] = [[] for _ in prompts]
    for drawn in generation.steps(n_tokens):
        for index, token in drawn:
            rows[index].append(token)
    return rows


def greedy_loop(model: Transformer, prompt: Sequence[int], n_tokens: int) -> list[int]:
    """The documented policy, spelled out: a full context goes on from its newest half."""
    context = model.config.context_length
    seen, new = list(prompt)[-context:], []
    for _ in range(n_tokens):
        with torch.no_grad():
            new.append(int(model(torch.tensor([seen]))[0, -1].argmax()))
        seen.append(new[-1])
        if len(seen) > context:
            seen = seen[-max(1, context // 2) :]
    return new


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_greedy_text_equals_a_plain_loop_to_three_times_the_context(position: str, use_cache: bool) -> None:
    model = awakened(SMALL.model_copy(update={"position": position}))
    expected = [greedy_loop(model, prompt, 3 * CONTEXT) for prompt in PROMPTS]
    assert generated(model, PROMPTS, 3 * CONTEXT, sampling=GREEDY, use_cache=use_cache) == expected


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("position", POSITIONS)
def test_the_cache_never_changes_the_text(position: str, n_kv_heads: int, window: int | None) -> None:
    model = awakened(SMALL.model_copy(update={"position": position, "n_kv_heads": n_kv_heads, "window": window}))
    cached = generated(model, PROMPTS, 3 * CONTEXT)
    assert cached == generated(model, PROMPTS, 3 * CONTEXT, use_cache=False)
    assert [len(row) for row in cached] == [3 * CONTEXT] * len(PROMPTS)


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("position", ["learned", "rotary", "alibi"])
def test_a_row_of_a_batch_gets_the_tokens_that_it_gets_alone(position: str, use_cache: bool) -> None:
    model = awakened(SMALL.model_copy(update={"position": position}))
    together = generated(model, PROMPTS, 2 * CONTEXT + 1, use_cache=use_cache)
    for prompt, row in zip(PROMPTS, together, strict=True):
        assert generated(model, [prompt], 2 * CONTEXT + 1, use_cache=use_cache) == [row]


@pytest.mark.parametrize("context", [1, 2, 3, 5])
def test_short_contexts_work_whatever_the_lengths_of_the_prompts(context: int) -> None:
    model = awakened(SMALL.model_copy(update={"context_length": context}))
    for lengths in itertools.product((1, 2, 4), repeat=2):
        prompts = [[(5 * i + row) % 13 for i in range(length)] for row, length in enumerate(lengths)]
        expected = [greedy_loop(model, prompt, 7) for prompt in prompts]
        assert generated(model, prompts, 7, sampling=GREEDY) == expected


def test_seeds_decide_and_rows_of_one_prompt_differ_by_theirs() -> None:
    model = awakened(SMALL)
    rows = []
    for seeds in ([1, 2], [1, 2], [2, 3]):
        generation = Generation(model, [[3], [3]], seeds=seeds, sampling=WARM)
        list(generation.steps(12))
        rows.append([row.tokens for row in generation.rows])
    assert rows[0] == rows[1]
    assert rows[0][0] != rows[0][1]
    assert rows[0][1] == rows[2][0]


@pytest.mark.parametrize("n_tokens", [0, 1, 29])
def test_exactly_the_tokens_asked_for_are_drawn(n_tokens: int) -> None:
    assert [len(row) for row in generated(awakened(SMALL), PROMPTS, n_tokens)] == [n_tokens] * len(PROMPTS)


def test_asking_twice_goes_on_where_it_stopped() -> None:
    once = Generation(awakened(SMALL), PROMPTS, seeds=range(5), sampling=WARM)
    twice = Generation(awakened(SMALL), PROMPTS, seeds=range(5), sampling=WARM)
    list(once.steps(17))
    list(twice.steps(6))
    list(twice.steps(11))
    assert [row.tokens for row in once.rows] == [row.tokens for row in twice.rows]


@pytest.mark.parametrize("use_cache", [False, True])
def test_a_drawn_end_token_ends_its_row_and_no_other(use_cache: bool) -> None:
    model = awakened(SMALL)
    free = generated(model, PROMPTS, 30)
    end = free[0][4]
    ended = generated(model, PROMPTS, 30, end_token=end, use_cache=use_cache)
    assert ended == [row[: row.index(end) + 1] if end in row else row for row in free]
    assert len({len(row) for row in ended}) > 1


def test_an_end_token_in_the_prompt_is_no_end() -> None:
    model = awakened(SMALL)
    prompt = [5, 12, 5]
    free = generated(model, [prompt], 6, sampling=GREEDY)
    assert 12 not in free[0]
    assert generated(model, [prompt], 6, sampling=GREEDY, end_token=12) == free


def test_a_row_that_is_finished_from_outside_gets_no_more_tokens() -> None:
    generation = Generation(awakened(SMALL), PROMPTS, seeds=range(5), sampling=WARM)
    for number, drawn in enumerate(generation.steps(9)):
        assert [index for index, _ in drawn] == ([0, 1, 2, 3, 4] if number <= 3 else [0, 2, 3, 4])
        generation.rows[1].finished = number == 3 or generation.rows[1].finished
    assert len(generation.rows[1].tokens) == len(PROMPTS[1]) + 4


def test_generating_leaves_the_model_and_torchs_random_numbers_as_they_were() -> None:
    model = awakened(SMALL.model_copy(update={"dropout": 0.5})).train()
    state = torch.get_rng_state()
    first = generated(model, PROMPTS, 5)
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert first == generated(model.eval(), PROMPTS, 5)
    assert not model.training


def test_a_prompt_without_tokens_and_a_row_without_a_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="a prompt needs at least one token"):
        Generation(awakened(SMALL), [[1], []], seeds=[1, 2], sampling=WARM)
    with pytest.raises(ValueError, match="shorter"):
        Generation(awakened(SMALL), [[1], [2]], seeds=[1], sampling=WARM)


LETTERS = char_tokenizer("abcdefghijklm")
WITH_END = char_tokenizer("abcdefghijkl", end_of_text=True)


def written(tokenizer: Tokenizer, prompt: list[int], **options: object) -> TextGeneration:
    writing = TextGeneration(awakened(SMALL), tokenizer, [prompt], seeds=[3], sampling=WARM, **options)
    pieces = list(writing.pieces(20))
    assert writing.rows[0].text == "".join(piece for _, piece in pieces)
    return writing


def test_text_is_the_drawn_tokens_decoded() -> None:
    row = written(LETTERS, [3, 1]).rows[0]
    generation = Generation(awakened(SMALL), [[3, 1]], seeds=[3], sampling=WARM)
    list(generation.steps(20))
    assert row.text == LETTERS.decode(generation.rows[0].tokens[2:])
    assert (row.tokens, row.finish, row.seed) == (20, "length", 3)


def test_a_stop_string_cuts_the_text_and_ends_the_row() -> None:
    whole = written(LETTERS, [3, 1]).rows[0].text
    stop = whole[7:10]
    row = written(LETTERS, [3, 1], stop=[stop, "zzz"]).rows[0]
    assert row.text == whole[: whole.index(stop)]
    assert (row.tokens, row.finish) == (whole.index(stop) + 3, "stop")


def test_the_end_of_a_text_is_not_shown() -> None:
    seed = next(seed for seed in range(99) if END_OF_TEXT in continued(seed, stop_at_end=False))
    whole = continued(seed, stop_at_end=False)
    assert continued(seed, stop_at_end=True) == whole[: whole.index(END_OF_TEXT)]


def continued(seed: int, *, stop_at_end: bool) -> str:
    """What a model writes after token 1; the end of text is token 12."""
    if stop_at_end:
        writing = TextGeneration(awakened(SMALL), WITH_END, [[1]], seeds=[seed], sampling=WARM)
        text = "".join(piece for _, piece in writing.pieces(20))
        assert writing.rows[0].finish == "end"
        return text
    generation = Generation(awakened(SMALL), [[1]], seeds=[seed], sampling=WARM)
    list(generation.steps(20))
    return WITH_END.decode(generation.rows[0].tokens[1:], skip_special_tokens=False)


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (WITH_END, 12),
        (char_tokenizer("ab\n"), 0),
        (byte_tokenizer(), ord("\n")),
        (byte_tokenizer(end_of_text=True), 256),
        (LETTERS, 0),
    ],
)
def test_an_empty_prompt_begins_with_the_end_of_the_text_before_or_a_new_line(
    tokenizer: Tokenizer, expected: int
) -> None:
    assert start_token(tokenizer) == expected
    if tokenizer in (WITH_END, LETTERS):
        assert written(tokenizer, []).rows[0].text == written(tokenizer, [expected]).rows[0].text
