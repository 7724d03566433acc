"""`attn board`: the right TensorBoard on the right folders."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from transformer.inspection.tensorboard_tags import MAX_TAGS, description

ROOT = Path(__file__).parents[2]


@pytest.fixture
def commands(monkeypatch):
    """The command lines that would have been started."""
    started = []

    def run(command, **_):
        started.append((command, sorted(path.name for path in Path(option(command, "--logdir")).iterdir())))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("cli.board.subprocess.run", run)
    return started


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_all_runs_are_shown_with_all_their_images(trained, commands):
    assert trained.attn("board").code == 0
    ((command, _),) = commands
    assert command[:3] == [sys.executable, "-m", "tensorboard.main"]
    assert option(command, "--logdir") == "runs"
    assert (option(command, "--port"), option(command, "--host")) == ("6006", "localhost")


def test_runs_that_are_named_are_shown_alone(trained, commands):
    trained.attn("board", "char", "runs/task", "--port", "7007", "--host", "0.0.0.0")
    ((command, shown),) = commands
    assert shown == ["char", "task"]
    assert (option(command, "--port"), option(command, "--host")) == ("7007", "0.0.0.0")


def test_two_runs_of_one_name_are_told_apart(trained, commands, tmp_path):
    other = tmp_path / "other" / "char"
    other.mkdir(parents=True)
    (other / "config.yaml").touch()
    trained.attn("board", "char", str(other))
    ((_, shown),) = commands
    assert shown == ["char", "char-2"]


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ([], "http://localhost:6006/"),
        (["--port=7007", "--host=0.0.0.0"], "http://0.0.0.0:7007/"),
        (["--host=::1"], "http://[::1]:6006/"),
    ],
)
def test_the_address_is_told(trained, commands, options, address):
    assert address in trained.attn("board", *options).err


def test_every_tag_of_a_run_is_described(trained):
    tags = trained.board_steps("char")
    assert [tag for tag in tags if not tag.startswith(("_hparams_", "custom_scalars")) and not description(tag)] == []
    assert len(tags) <= MAX_TAGS


def test_what_is_no_run_is_refused(trained, work, commands):
    assert "nobody" in trained.attn("board", "char", "nobody").refused()
    assert "holds no run yet" in work.attn("board").refused()
    assert trained.attn("board", "--port=70000").code == 2
    assert commands == []


def test_the_page_has_every_picture_every_loss_and_the_record(trained):
    command = [sys.executable, "-m", "cli", "board", "char", "--port=0", "--host=127.0.0.1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=trained.folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
            assert b"TensorBoard" in fetch(url)
            pictures = f"{url}data/plugin/images/images?run=char/tensorboard&tag=attention/layer_0&sample=0"
            losses = f"{url}data/plugin/scalars/scalars?run=char/tensorboard&tag=loss/validation"
            deadline = time.monotonic() + 10
            while fetch_json(losses) in (None, []) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert [picture["step"] for picture in fetch_json(pictures)] == trained.board_steps("char")[
                "attention/layer_0"
            ]
            assert len(fetch_json(losses)) == len(trained.board_steps("char")["loss/validation"])
            assert [run["name"] for run in fetch_json(f"{url}data/plugin/attention/runs")["runs"]] == ["char"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # a shell may have had Ctrl-C ignored
            process.communicate(timeout=10)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        return bytes(response.read())


def fetch_json(url: str) -> Any:
    """The answer, or None where TensorBoard has not read that far."""
    try:
        return json.loads(fetch(url))
    except urllib.error.HTTPError:
        return None
