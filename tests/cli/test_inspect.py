"""`attn inspect`: what the page it writes holds, and what it refuses."""

import base64
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Workspace
from transformer import attention_maps, open_run
from transformer.files import digest, read_json, write_json
from transformer.inspection.map_file import decode_maps
from transformer.inspection.record import Record
from transformer.run_folder import RunFolder


def inspect(work: Workspace, *arguments: str) -> list[dict[str, Any]]:
    """The views of the page that the command writes."""
    result = work.attn("inspect", *arguments)
    assert result.code == 0, result.err
    return views_of(work.folder / result.out.strip())


def views_of(page: Path) -> list[dict[str, Any]]:
    data = re.search(r'<script type="application/json" id="views">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert data is not None
    views: list[dict[str, Any]] = json.loads(data[1])["views"]
    return views


def maps_of(frame: dict[str, Any]) -> np.ndarray:
    return decode_maps(base64.b64decode(frame["maps"]))[1]


def test_the_page_of_a_text_holds_the_maps_of_the_checkpoint(trained: Workspace) -> None:
    (view,) = inspect(trained, "char", "--text", "the fox", "--checkpoint", "last")
    run = open_run(trained.run("char"), "last")
    ids = torch.tensor([[run.tokenizer.token_to_id(character) for character in "the fox"]])
    expected = attention_maps(run.model, ids)[:, 0].flatten(0, 1).numpy()
    assert [token["text"] for token in view["tokens"]] == list("the fox")
    np.testing.assert_allclose(maps_of(view["frames"][0]), expected, atol=1e-5)
    assert view["frames"][0]["step"] == run.step == 10


def test_every_token_but_the_first_has_its_probability_and_the_likeliest_tokens(trained: Workspace) -> None:
    (view,) = inspect(trained, "char", "--text", "the fox")
    run = open_run(trained.run("char"))
    ids = torch.tensor([[run.tokenizer.token_to_id(character) for character in "the fox"]])
    probabilities = run.model(ids)[0].softmax(dim=-1)
    assert view["predictions"][0] is None
    for place, prediction in enumerate(view["predictions"][1:]):
        assert prediction["probability"] == pytest.approx(probabilities[place, ids[0, place + 1]].item(), abs=1e-6)
        best = [probability for _, probability in prediction["alternatives"]]
        assert best == pytest.approx(probabilities[place].topk(5).values.tolist(), abs=1e-6)
        token, _ = prediction["alternatives"][0]
        assert token["text"] == run.tokenizer.id_to_token(int(probabilities[place].argmax()))


def test_generated_text_says_where_the_prompt_ends_and_is_that_of_generate(trained: Workspace) -> None:
    drawing = ("--prompt", "the", "--tokens", "9", "--seed", "3", "--temperature", "1")
    (view,) = inspect(trained, "char", *drawing)
    text = "".join(token["text"] for token in view["tokens"])
    answer = json.loads(trained.attn("generate", "char", *drawing, "--json").out)
    assert view["prompt_length"] == 3
    assert text == "the" + answer["text"]


def test_without_a_text_the_page_shows_the_sentence_of_the_run(trained: Workspace) -> None:
    (view,) = inspect(trained, "task")
    stored = Record(trained.run("task") / "inspection").read_probe()
    assert [token["text"] for token in view["tokens"]] == [token.text for token in stored.tokens]
    assert view["frames"][0]["report"]["step"] == view["frames"][0]["step"]


def test_a_film_has_a_frame_for_every_recorded_step_or_as_many_as_wanted(work: Workspace) -> None:
    assert work.train(inspection__maps="7").code == 0
    steps = Record(work.run() / "inspection").map_steps()
    (view,) = inspect(work, "--film")
    assert [frame["step"] for frame in view["frames"]] == steps
    assert len(steps) == 7
    (view,) = inspect(work, "--film", "--frames", "3")
    assert [frame["step"] for frame in view["frames"]] == [steps[0], steps[3], steps[6]]


def test_two_runs_or_checkpoints_are_shown_against_each_other(work: Workspace) -> None:
    assert work.train("--name", "a", training__keep_checkpoints="3").code == 0
    assert work.train("--name", "b", seed="7").code == 0
    first, second = inspect(work, "a", "--text", "quick", "--checkpoint", "last", "--against", "b@10")
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["tokens"] == second["tokens"]
    first, second = inspect(work, "a", "--checkpoint", "last", "--against", "@5")
    assert (first["frames"][0]["step"], second["frames"][0]["step"]) == (10, 5)
    films = inspect(work, "a", "--film", "--against", "b")
    assert [[frame["step"] for frame in film["frames"]] for film in films] == [[0, 10], [0, 10]]


def test_the_page_goes_where_the_user_wants_or_into_the_run(trained: Workspace, work: Workspace) -> None:
    out = work.folder / "page.html"
    result = trained.attn("inspect", "char", "--out", str(out))
    assert result.out == f"{out}\n"
    assert views_of(out)
    assert trained.attn("inspect", "char").out == f"{Path('runs', 'char', 'attention.html')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["char", "--text", ""], ["--text", "at least one character"]),
        (["char", "--text", "é"], ["--text", "é (U+00E9)"]),
        (["char", "--text", "the quick brown fox"], ["19 tokens", "context of 16"]),
        (["char", "--prompt", "the", "--tokens", "99"], ["102 tokens", "context of 16"]),
        (["char", "--prompt", "the", "--temperature", "-1"], ["temperature", "-1"]),
        (["char", "--text", "a", "--prompt", "b"], ["--text and --prompt"]),
        (["char", "--seed", "0"], ["--seed", "without --prompt"]),
        (["char", "--frames", "2"], ["--frames", "without --film"]),
        (["char", "--film", "--checkpoint", "best"], ["--checkpoint", "with --film"]),
        (["char", "--film", "--heads", "0.0"], ["--heads", "with --film"]),
        (["char", "--film", "--against", "@10"], ["--against @10", "@10 has no effect with --film"]),
        (["char", "--heads", "2.0"], ["2.0", "layers 0 to 1", "heads 0 to 1"]),
        (["char", "--heads", "0.0,"], ["nothing is no head"]),
        (["char", "--heads", "²"], ["--heads", "²"]),
        (["char", "--against", "bpe"], ["--against bpe", "tokenizer"]),
        (["char", "--against", "@7"], ["no checkpoint of step 7"]),
        (["char", "--against", "bpe@worst"], ["--against bpe@worst: must be best"]),
        (["char", "--checkpoint", ""], ["--checkpoint : must be best"]),
        (["char", "--film", "--against", "task"], ["different sentences", "probe_text"]),
        (["char", "--checkpoint", "worst"], ["--checkpoint worst"]),
        (["char", "--budget", "0.05"], ["budget", "--budget", "fewer tokens", "--heads"]),
        (["char", "--out", "nowhere/page.html"], ["nowhere/page.html: there is no folder", "--out"]),
        (["char", "--out", "runs"], ["runs: is a folder", "--out"]),
        (["char", "--out", ""], [".: is a folder", "--out"]),
        (["char", "--out", "/"], ["/: is a folder", "--out"]),
        (["char", "--out", "x" * 255], ["x: cannot be written: File name too long"]),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_message(
    trained: Workspace, arguments: list[str], words: list[str]
) -> None:
    message = trained.attn("inspect", *arguments).refused()
    for word in words:
        assert word in message


@pytest.mark.skipif(sys.platform == "win32", reason="makes a FIFO")
def test_a_pipe_or_a_device_is_never_replaced_by_a_page(work: Workspace) -> None:
    assert work.train().code == 0
    os.mkfifo(work.folder / "pipe")
    (work.folder / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        assert "is a device or a pipe" in work.attn("inspect", "--out", name).refused()
    assert (work.folder / "pipe").is_fifo()


def test_a_page_is_written_where_a_link_leads(work: Workspace) -> None:
    assert work.train().code == 0
    (work.folder / "link.html").symlink_to("page.html")
    assert work.attn("inspect", "--out", "link.html").out == "link.html\n"
    assert (work.folder / "link.html").is_symlink()
    assert views_of(work.folder / "page.html")


def test_more_heads_in_full_than_a_page_can_hold_are_refused(
    trained: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.inspection.map_file.MAX_VALUES", 4 * 10)
    message = trained.attn("inspect", "char", "--text", "the fox").refused()
    assert "fewer tokens" in message
    assert "--heads" in message


def test_weights_that_are_no_numbers_are_shown_and_draw_nothing(work: Workspace) -> None:
    assert work.train().code == 0
    path = RunFolder(work.run()).checkpoint("best").path
    weights = load_file(path / "model.safetensors")
    weights["blocks.1.attention.output.weight"].fill_(math.nan)
    save_file(weights, path / "model.safetensors")
    record = read_json(path / "checkpoint.json")
    digests = {"model.safetensors": digest(path / "model.safetensors")}
    write_json(path / "checkpoint.json", {**record, "digests": digests})
    (view,) = inspect(work, "--text", "the fox")
    assert view["predictions"] == [None] * 7
    assert "no number" in work.attn("inspect", "--prompt", "the").refused()
    result = work.attn("generate", "--prompt", "the")  # which has shown the prompt by then
    assert (result.code, result.out) == (1, "the")
    assert "no number" in result.err


def test_a_run_without_a_record_says_how_to_look_at_it(work: Workspace) -> None:
    assert work.train(inspection__maps="0", inspection__images="0").code == 0
    assert "leave --film out" in work.attn("inspect", "--film").refused()
    assert work.attn("inspect").code == 0
