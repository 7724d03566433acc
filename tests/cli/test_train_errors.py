"""`attn train`: what it refuses, before any compute, and how it ends where numbers go wrong."""

import re

import pytest
import torch

import transformer.training.loop as training_loop

# Texts that cannot be used: one message, before any compute, and nothing is left in runs/


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no text in it"),
        (b"\xef\xbb\xbf", "has no text in it"),
        (b"ab\xffcd" * 100, "byte 0xff at offset 2 is not UTF-8"),
        ("ab".encode("utf-16"), "UTF-16"),
        (b"a\nb\nc", "at least 2 tokens"),
        (b"abcdefghij" * 4 + b"\xc3", "offset 40"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(work, content, said):
    work.write("bad.txt", content)
    message = work.train(data__source="bad.txt").refused()
    assert said in message
    assert "bad.txt" in message
    assert work.run_names() == []


@pytest.mark.parametrize(("characters", "context"), [(40, 37), (100, 97), (30, 500)])
def test_a_text_shorter_than_the_context_names_the_largest_that_works(work, characters, context):
    work.write("short.txt", "abcde" * (characters // 5))
    message = work.train(data__source="short.txt", model__context_length=context).refused()
    train_tokens = int(characters * 0.9)
    assert f"has {train_tokens} tokens, but context_length {context} needs {context + 1}" in message
    assert f"the largest that works is {train_tokens - 1}" in message
    assert work.run_names() == []
    assert work.train(data__source="short.txt", model__context_length=train_tokens - 1).code == 0


@pytest.mark.parametrize("source", ["missing.txt", "no*.txt", "runs", "/nonexistent/x.txt"])
def test_a_text_that_is_not_there_is_refused(work, source):
    assert source in work.train(data__source=source).refused()
    assert work.run_names() == []


@pytest.mark.parametrize("key", ["logging.sample_prompt", "inspection.probe_text"])
def test_a_text_of_the_configuration_that_the_vocabulary_lacks_is_refused_at_once(work, key):
    message = work.train(f"--set={key}=a foxé").refused()
    assert message.startswith(f"error: {key}: the vocabulary has no é (U+00E9)")
    assert "byte or bpe" in message
    assert work.run_names() == []


@pytest.mark.parametrize("file", ["missing.yaml", "tiny.txt", "cache", ""])
def test_a_configuration_that_is_none_is_refused(work, file):
    (work.folder / "cache").mkdir()
    work.attn("train", file).refused()
    assert work.run_names() == []


def test_a_runs_that_is_a_file_is_named(work):
    work.write("runs", "a file")
    assert "runs" in work.train().refused()


# Numbers that go wrong


def test_a_run_that_diverges_ends_with_3_and_keeps_its_last_good_checkpoint(work):
    settings = {"training__optimizer": "adamw", "training__learning_rate": 10, "training__weight_decay": 50}
    result = work.train(training__eval_every=2, training__max_steps=60, training__warmup_steps=9, **settings)
    assert result.code == 3, result.err
    assert "Traceback" not in result.err
    assert re.search(r"error: step \d+: .*lower the learning rate", result.err)
    assert work.attn("evaluate", "--checkpoint", "last").code == 0


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_at_that_step(work, loss, monkeypatch):
    accumulate = training_loop.Trainer._accumulate

    def spoiled(self, inputs, targets, n_tokens):
        good = accumulate(self, inputs, targets, n_tokens)
        return torch.full_like(good, loss) if self.progress.step == 6 else good

    monkeypatch.setattr(training_loop.Trainer, "_accumulate", spoiled)
    result = work.train()
    assert result.code == 3
    assert f"error: step 7: the loss is {loss:g}" in result.err
    assert [path.name for path in (work.run() / "checkpoints").glob("step_*")] == ["step_00000005"]


@pytest.mark.parametrize("settings", [{"model__d_ff": 10**13}, {"model__d_ff": 2**63 - 1}])
def test_a_model_that_does_not_fit_into_memory_is_refused(work, settings):
    assert "not enough memory" in work.train(**settings).refused()
    assert work.run_names() == []
