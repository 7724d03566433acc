"""What the shipped configurations reach, trained in full. Minutes each: `pytest -m long`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import ROOT

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


def test_two_layers_learn_induction_within_a_minute(attn: Attn) -> None:
    result = attn.train("induction")
    assert result["accuracy"] >= 0.95
    assert result["seconds"] <= 60


def test_one_layer_cannot_learn_induction(attn: Attn) -> None:
    assert attn.train("induction_one_layer")["accuracy"] <= 0.25
