"""`attn evaluate`: the logged loss again, exactly, and the loss of any other text."""

import json
import math
import shutil

import pytest


def evaluation(work, *arguments: str) -> dict[str, object]:
    result = work.attn("evaluate", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.parametrize("name", ["bpe", "byte", "char", "task"])
@pytest.mark.parametrize("checkpoint", ["best", "last", "10"])
def test_the_loss_is_exactly_the_logged_one(trained, name, checkpoint):
    logged = [line for line in trained.metrics(name) if "loss/validation" in line][-1]
    answer = evaluation(trained, name, "--checkpoint", checkpoint)
    assert answer["loss"] == logged["loss/validation"]
    assert answer["step"] == logged["step"] == 10
    assert answer["bits_per_byte"] == logged.get("validation/bits_per_byte")
    assert answer["accuracy"] == logged.get("validation/accuracy")


def test_best_is_not_last_where_the_loss_rose(work):
    work.write("other.txt", "ZQXJ%&$" * 13)
    work.train(data__validation="other.txt", data__tokenizer="byte", training__eval_every=1)
    losses = {line["step"]: line["loss/validation"] for line in work.metrics() if "loss/validation" in line}
    best = min(losses, key=losses.__getitem__)
    assert best != 10
    assert (evaluation(work)["step"], evaluation(work)["loss"]) == (best, losses[best])
    last = evaluation(work, "--checkpoint", "last")
    assert (last["step"], last["loss"]) == (10, losses[10])


def test_a_run_in_bf16_is_evaluated_as_it_was_trained(work):
    work.train(training__precision="bf16")
    assert evaluation(work)["loss"] == work.metrics()[-1]["loss/validation"]


def test_json_carries_every_promised_key(trained):
    keys = {"loss", "perplexity", "bits_per_byte", "tokens", "step", "checkpoint"}
    answer = evaluation(trained, "char")
    assert keys <= answer.keys()
    assert answer["perplexity"] == pytest.approx(math.exp(answer["loss"]))
    assert answer["tokens"] == 211
    assert answer["checkpoint"] == "runs/char/checkpoints/step_00000010"
    task = evaluation(trained, "task")
    assert task["bits_per_byte"] is None
    assert 0.0 <= task["accuracy"] <= 1.0


def test_units_are_in_their_bases(trained):
    trained.write("known.txt", "the quick brown fox")
    answer = evaluation(trained, "byte", "--text", "known.txt")
    assert answer["tokens"] == 18  # the first has nothing before it
    assert answer["bits_per_byte"] == pytest.approx(answer["loss"] / math.log(2))


def test_the_words_say_the_same_as_json(trained):
    said = trained.attn("evaluate", "char").out
    answer = evaluation(trained, "char")
    rows = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert rows["loss"].startswith(f"{answer['loss']:.4f}")
    assert rows["perplexity"] == f"{answer['perplexity']:.4f}"
    assert rows["tokens"] == "211"
    assert "accuracy" not in said
    assert "accuracy" in trained.attn("evaluate", "task").out


def test_the_newest_run_is_the_default(trained):
    assert evaluation(trained)["checkpoint"] == "runs/task/checkpoints/step_00000010"


def test_a_run_that_was_moved_away_still_works(trained, work):
    shutil.copytree(trained.run("bpe"), work.folder / "elsewhere")
    assert evaluation(work, "elsewhere")["loss"] == evaluation(trained, "bpe")["loss"]
    assert evaluation(work, str(work.folder / "elsewhere"))["loss"] == evaluation(trained, "bpe")["loss"]


@pytest.mark.parametrize("name", ["bpe", "byte", "char"])
def test_another_text_is_scored_whole(trained, name):
    trained.write("text.txt", "a lazy dog sings.\n" * 31)
    answer = evaluation(trained, name, "--text", "text.txt")
    characters = 18 * 31
    assert answer["tokens"] == characters - 1 if name != "bpe" else answer["tokens"] < characters


@pytest.mark.parametrize("stride", ["1", "3", "16"])
def test_every_stride_scores_every_token_once(trained, stride):
    answer = evaluation(trained, "char", "--stride", stride)
    assert answer["tokens"] == 211
    assert (answer["loss"] == evaluation(trained, "char")["loss"]) == (stride == "16")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["char", "--text", "missing.txt"], "missing.txt"),
        (["char", "--text", "empty.txt"], "empty.txt has no text"),
        (["char", "--text", "bad.txt"], "byte 0xff at offset 3 is not UTF-8"),
        (["char", "--text", "strange.txt"], "é (U+00E9)"),
        (["char", "--text", "one.txt"], "at least 2"),
        (["char", "--checkpoint", "7"], "no checkpoint of step 7; there are 10"),
        (["char", "--checkpoint", "newest"], "best, last or the step"),
        (["char", "--checkpoint", "-1"], "best, last or the step"),
        (["char", "--checkpoint", "１０"], "best, last or the step"),
        (["char", "--stride", "17"], "between 1 and the context length, 16"),
        (["task", "--stride", "3"], "--stride: has no effect on a task"),
        (["char", "--device", "tpu"], "--device tpu: must be auto, cpu, cuda or mps"),
        (["nobody"], "nobody: no run folder of that path, nor a run of that name"),
        (["tiny.yaml"], "tiny.yaml: no run folder"),
    ],
)
def test_what_cannot_be_scored_is_refused(trained, arguments, said):
    for name, content in {
        "empty.txt": b"",
        "bad.txt": b"abc\xff",
        "strange.txt": "aé".encode(),
        "one.txt": b"a",
    }.items():
        trained.write(name, content)
    assert said in trained.attn("evaluate", *arguments).refused()


def test_without_a_run_it_says_how_to_get_one(work):
    assert "holds no run yet; train one with `attn train CONFIG`" in work.attn("evaluate").refused()


@pytest.mark.parametrize(
    "file", ["validation.npy", "tokenizer.json", "config.yaml", "checkpoints/step_00000010/model.safetensors"]
)
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_run_is_named_without_a_traceback(trained, work, file, damage):
    shutil.copytree(trained.run("char"), work.run("char"))
    path = work.run("char") / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:41])
    message = work.attn("evaluate", "runs/char").refused()
    assert str(path.relative_to(work.folder)) in message or "no run folder" in message
