"""`attn inspect`: what the page it writes holds, and what it refuses."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.conftest import Workspace
from transformer import attention_maps, open_run
from transformer.inspection.map_file import decode_maps
from transformer.inspection.record import Record


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
        (["char", "--out", "nowhere/page.html"], ["nowhere"]),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_message(
    trained: Workspace, arguments: list[str], words: list[str]
) -> None:
    message = trained.attn("inspect", *arguments).refused()
    for word in words:
        assert word in message


def test_a_run_without_a_record_says_how_to_look_at_it(work: Workspace) -> None:
    assert work.train(inspection__maps="0", inspection__images="0").code == 0
    assert "leave --film out" in work.attn("inspect", "--film").refused()
    assert work.attn("inspect").code == 0
