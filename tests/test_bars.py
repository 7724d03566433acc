"""What the shipped configurations reach, trained in full. Minutes each: `pytest -m long`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.readme import ROOT
from transformer.inspection.map_file import decode_maps
from transformer.inspection.record import Record

pytestmark = pytest.mark.long

SHAKESPEARE = ROOT / "data" / "corpora" / "tinyshakespeare.txt"


@pytest.fixture
def attn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Attn":
    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / "cache"))
    return Attn(tmp_path)


class Attn:
    """The command, run as a newcomer runs it, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "cli", *arguments]
        own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # all cores
        done = subprocess.run(command, cwd=self.folder, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def train(self, name: str) -> dict[str, float]:
        """Train a shipped configuration; returns how far it came and its exact scores."""
        self("train", str(ROOT / "configs" / f"{name}.yaml"))
        run = self.folder / "runs" / name
        last = json.loads((run / "checkpoints" / "last.json").read_text())
        record = json.loads((run / "checkpoints" / f"step_{last['step']:08d}" / "checkpoint.json").read_text())
        scores = json.loads(self("evaluate", name, "--json"))
        result = {**scores, "seconds": record["progress"]["seconds"], "trained_tokens": record["progress"]["tokens"]}
        print(name, result)  # noqa: T201
        return result


def test_quickstart_trains_within_three_minutes_and_writes_readable_text(attn: Attn) -> None:
    result = attn.train("quickstart")
    assert result["seconds"] <= 180
    assert result["bits_per_byte"] <= 1.70
    answer = json.loads(attn("generate", "--prompt", "The ", "--tokens", "200", "--json"))
    letters = [character for character in answer["text"] if character.isalpha() or character in " \n.,"]
    assert len(letters) > 0.9 * len(answer["text"])


def test_shakespeare_on_a_cpu_ends_below_1_70_after_1_54_million_characters(attn: Attn) -> None:
    assert SHAKESPEARE.exists(), "copy tinyshakespeare.txt to data/corpora/"
    corpora = attn.folder / "data" / "corpora"
    corpora.mkdir(parents=True)
    (corpora / SHAKESPEARE.name).symlink_to(SHAKESPEARE)
    result = attn.train("shakespeare_cpu")
    assert result["tokens"] == 111_539
    assert result["trained_tokens"] <= 1_540_000
    assert result["loss"] <= 1.70


def best(heads: list[dict[str, object]], layer: int, score: str) -> dict[str, object]:
    """The head of a layer with the highest score."""
    return max((head for head in heads if head["layer"] == layer), key=lambda head: head["scores"][score])  # type: ignore[index]


def test_two_layers_grow_previous_token_heads_and_with_them_induction_heads(attn: Attn) -> None:
    result = attn.train("induction")
    assert result["accuracy"] >= 0.95
    assert result["seconds"] <= 120
    heads = json.loads(attn("heads", "--json"))
    for layer, score, badge in ((0, "previous_token", "previous-token"), (1, "induction", "induction")):
        head = best(heads, layer, score)
        assert head["scores"][score] >= 0.8  # type: ignore[index]
        assert badge in head["badges"]  # type: ignore[operator]
    film = Record(attn.folder / "runs" / "induction" / "inspection")
    shown = [(step, *strengths(film, step)) for step in film.map_steps()]
    print(shown)  # noqa: T201
    looks_back = next(step for step, previous, _ in shown if previous >= 0.4)
    copies = next(step for step, _, induction in shown if induction >= 0.4)
    assert len(shown) == 20
    assert 100 <= looks_back <= 450  # the phase change: nothing before it, and both together
    assert 100 <= copies <= 450


def strengths(film: Record, step: int) -> tuple[float, float]:
    """On the sentence, whose period is 8: the best previous-token head of layer 0 and induction head of layer 1."""
    _, maps = decode_maps(film.read_maps(step))
    first, second = maps.reshape(2, 4, 24, 24)
    previous = np.diagonal(first, -1, 1, 2)[:, 1:].mean(axis=1)
    induction = [np.mean([head[i, i - 7 :: -8].sum() for i in range(8, 24)]) for head in second]
    return float(previous.max()), float(max(induction))


def test_one_layer_cannot_learn_induction_and_gets_no_such_badge(attn: Attn) -> None:
    assert attn.train("induction_one_layer")["accuracy"] <= 0.25
    assert not [head for head in json.loads(attn("heads", "--json")) if "induction" in head["badges"]]
