"""Evaluation against a loop that scores one token at a time in plain floats."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from data.batches import evaluation_rows, evaluation_windows
from data.config import DataConfig
from data.tasks import make_task
from data.tokenizer import byte_tokenizer, encode, token_bytes, token_characters
from tests.model.test_attention import awakened
from transformer.inference.evaluation import Evaluation, EvaluationBatch, TextSizes, evaluate
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer

CONTEXT = 7
SMALL = ModelConfig(d_model=16, n_heads=2, n_layers=2, context_length=CONTEXT)
IDS = np.random.default_rng(1).integers(13, size=59).astype(np.uint16)


def windows(*, batch_size: int = 4, stride: int | None = None, ids: np.ndarray = IDS) -> Iterator[EvaluationBatch]:
    return evaluation_windows(ids, context_length=CONTEXT, batch_size=batch_size, stride=stride)


def surprise(model: Transformer, past: np.ndarray, token: int) -> float:
    """-log p(token | past), by hand."""
    with torch.no_grad():
        logits = model(torch.from_numpy(past.astype(np.int64))[None])[0, -1].tolist()
    return math.log(sum(math.exp(value) for value in logits)) - logits[token]


def test_the_loss_is_the_mean_surprise_of_every_token_but_the_first() -> None:
    model = awakened(SMALL)
    surprises = [
        surprise(model, IDS[start:at], int(IDS[at]))
        for at in range(1, len(IDS))
        for start in [(at - 1) // CONTEXT * CONTEXT]
    ]
    result = evaluate(model, windows())
    assert result.loss == pytest.approx(sum(surprises) / 58, abs=1e-6)
    assert result.tokens == 58
    assert result.perplexity == pytest.approx(math.exp(sum(surprises) / 58), rel=1e-5)


@pytest.mark.parametrize("stride", [1, 3, 5, 7])
def test_a_stride_gives_tokens_more_past_and_scores_each_once(stride: int) -> None:
    model = awakened(SMALL)
    surprises = []
    for at in range(1, len(IDS)):  # the first window that reaches the token begins at a multiple of the stride
        start = max(0, math.ceil((at - CONTEXT) / stride)) * stride
        surprises.append(surprise(model, IDS[start:at], int(IDS[at])))
    result = evaluate(model, windows(stride=stride))
    assert result.tokens == 58
    assert result.loss == pytest.approx(sum(surprises) / 58, abs=1e-6)


@pytest.mark.parametrize("stride", [None, 3])
@pytest.mark.parametrize("n_ids", [2, 7, 8, 9, 15, 59])
def test_the_batch_size_does_not_matter(n_ids: int, stride: int | None) -> None:
    model = awakened(SMALL)
    one_by_one = evaluate(model, windows(batch_size=1, stride=stride, ids=IDS[:n_ids]))
    for batch_size in (2, 3, 100):
        result = evaluate(model, windows(batch_size=batch_size, stride=stride, ids=IDS[:n_ids]))
        assert result.tokens == one_by_one.tokens == n_ids - 1
        assert result.loss == pytest.approx(one_by_one.loss, abs=1e-6)


def test_ignored_targets_do_not_count() -> None:
    model = awakened(SMALL)
    inputs, targets, _ = next(windows())
    scored = [(row, at) for row in range(4) for at in range(CONTEXT) if (row + at) % 3]
    masked = torch.full_like(targets, -100)
    for row, at in scored:
        masked[row, at] = targets[row, at]
    expected = [surprise(model, inputs[row, : at + 1].numpy(), int(targets[row, at])) for row, at in scored]
    result = evaluate(model, [(inputs, masked, None)])
    assert result.tokens == len(scored)
    assert result.loss == pytest.approx(sum(expected) / len(scored), abs=1e-6)


def test_a_model_that_knows_nothing_needs_as_many_bits_as_tokens_can_tell_apart() -> None:
    """The output of a new model is uniform: ln V nats a token, whatever the text."""
    tokenizer = byte_tokenizer(end_of_text=True)
    text = "naïve 👍 日本\n"
    ids = np.append(encode(tokenizer, text), 256).astype(np.uint16)  # the end of text is scored but has no length
    sizes = TextSizes(torch.from_numpy(token_bytes(tokenizer)), torch.from_numpy(token_characters(tokenizer)))
    result = evaluate(Transformer(SMALL, 257), windows(ids=np.insert(ids, 0, 256)), sizes=sizes)
    assert result.loss == pytest.approx(math.log(257), abs=1e-6)
    assert result.perplexity == pytest.approx(257, abs=1e-3)
    assert result.bits_per_byte == pytest.approx(math.log2(257) * (len(text.encode()) + 1) / len(text.encode()))
    assert result.bits_per_character == pytest.approx(math.log2(257) * (len(text.encode()) + 1) / len(text))


def test_bits_use_the_sizes_of_scored_targets_only() -> None:
    sizes = TextSizes(torch.arange(13), torch.arange(13) // 2)
    inputs, targets, _ = next(windows())
    targets[0] = -100
    result = evaluate(awakened(SMALL), [(inputs, targets, None)], sizes=sizes)
    scored = targets[1:].flatten().tolist()
    assert result.bits_per_byte == pytest.approx(result.loss * len(scored) / math.log(2) / sum(scored))
    assert result.bits_per_character == pytest.approx(
        result.loss * len(scored) / math.log(2) / sum(token // 2 for token in scored)
    )


def test_nothing_is_said_of_bytes_or_accuracy_without_sizes_or_predictable_tokens() -> None:
    result = evaluate(awakened(SMALL), windows())
    assert (result.bits_per_byte, result.bits_per_character, result.accuracy) == (None, None, None)


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_accuracy_counts_first_choices_among_the_predictable_tokens(batch_size: int) -> None:
    task = make_task(DataConfig(source="copy", vocab_size=3), context_length=CONTEXT, seed=3)
    model = Transformer(SMALL, task.tokenizer.get_vocab_size())
    with torch.no_grad():
        model.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    hits = total = 0
    for inputs, targets, predictable in evaluation_rows(task, batch_size=1, n_rows=20):
        choices = model(inputs)[0].tolist()
        for at in range(CONTEXT):
            if predictable[0, at]:
                total += 1
                hits += max(range(len(choices[at])), key=lambda i, at=at: choices[at][i]) == int(targets[0, at])
    result = evaluate(model, evaluation_rows(task, batch_size=batch_size, n_rows=20))
    assert 0 < hits < total
    assert result.accuracy == hits / total


@pytest.mark.parametrize("nothing", [[], [(torch.zeros(2, 3, dtype=torch.long), torch.full((2, 3), -100), None)]])
def test_no_token_to_score_is_an_error_and_not_nan(nothing: list[EvaluationBatch]) -> None:
    with pytest.raises(ValueError, match="there is no token to score"):
        evaluate(awakened(SMALL), nothing)


@pytest.mark.parametrize("training", [False, True])
def test_dropout_plays_no_part_and_the_model_is_left_as_it_was(training: bool) -> None:
    model = awakened(SMALL.model_copy(update={"dropout": 0.5})).train(training)
    undropped = evaluate(awakened(SMALL), windows())
    state = torch.get_rng_state()
    assert evaluate(model, windows()).loss == undropped.loss
    assert model.training is training
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_the_mode_is_restored_when_an_evaluation_fails() -> None:
    model = awakened(SMALL).train()
    with pytest.raises(ValueError, match="do not fit"):
        evaluate(model, [(torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 8, dtype=torch.long), None)])
    assert model.training


def test_a_hopeless_loss_has_an_infinite_perplexity() -> None:
    assert Evaluation(loss=1e4, tokens=1).perplexity == math.inf
    assert Evaluation(loss=0.0, tokens=1).perplexity == 1.0
