"""The `attn` command, called in this process: in a folder of its own, with its own streams and cache."""

import contextlib
import io
import json
import os
import pty
import random
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from cli.__main__ import main

TINY = """\
device: cpu
data: {source: tiny.txt, tokenizer: char}
model: {d_model: 16, n_heads: 2, n_layers: 2, context_length: 16}
training: {max_steps: 10, batch_size: 4, eval_every: 5, eval_tokens: 211}
logging: {log_every: 5, sample_tokens: 7}
inspection: {images: 2, maps: 2, probe_tokens: 5}
"""

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "pale", "birds", "sing"]


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def refused(self) -> str:
        """The one message of a command that a user can mend: no traceback, nothing on stdout."""
        assert self.code == 1, self.err
        assert self.out == ""
        assert "Traceback" not in self.err
        assert self.err.count("error: ") == 1
        return self.err[self.err.index("error: ") :]


class _Terminal(io.TextIOWrapper):
    """A terminal of so many columns."""

    def __init__(self, columns: int) -> None:
        screen, line = pty.openpty()
        tty.setraw(line)  # line ends stay as they were written
        termios.tcsetwinsize(line, (24, columns))
        super().__init__(os.fdopen(line, "wb"))
        self._screen, self._shown = screen, bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(self._screen, 4096):
                self._shown += chunk

    def read_and_close(self) -> str:
        """All that was written."""
        self.close()
        self._reader.join()
        os.close(self._screen)
        return self._shown.decode("utf-8")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8")


@dataclass
class Workspace:
    """A working directory with a small text, `tiny.txt`, and a small experiment, `tiny.yaml`."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(1)
        text = "".join(" ".join(rng.choices(WORDS, k=7)) + ".\n" for _ in range(97))
        self.write("tiny.txt", text)
        self.write("tiny.yaml", TINY)
        self.environment |= {
            "ATTN_CACHE_DIR": str(self.folder / "cache"),
            "COLUMNS": "100",
            "TERM": "xterm",
        }

    def write(self, name: str, content: str | bytes) -> None:
        """Put a file into the folder."""
        (self.folder / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)

    def attn(self, *arguments: str, stdin: bytes = b"", columns: int | None = None) -> Result:
        """Run `attn` with arguments, here; `columns` makes stderr a terminal."""
        out = io.TextIOWrapper(io.BytesIO())
        err = io.TextIOWrapper(io.BytesIO()) if columns is None else _Terminal(columns)
        streams = {"stdin": io.TextIOWrapper(io.BytesIO(stdin)), "stdout": out, "stderr": err}
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.folder))
            stack.enter_context(mock.patch.dict(os.environ, self.environment))
            stack.enter_context(mock.patch.multiple(sys, argv=["attn", *arguments], **streams))
            with pytest.raises(SystemExit) as end:
                main()
        said = err.read_and_close() if isinstance(err, _Terminal) else _written(err)
        return Result(int(end.value.code or 0), _written(out), said)

    def train(self, *arguments: str, **settings: object) -> Result:
        """Train tiny.yaml with settings such as `training__max_steps=3`."""
        overrides = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
        result = self.attn("train", "tiny.yaml", *arguments, *overrides)
        assert result.out == ""
        return result

    def run(self, name: str = "tiny") -> Path:
        """The folder of a run."""
        return self.folder / "runs" / name

    def run_names(self) -> list[str]:
        """Every run that there is."""
        runs = self.folder / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.exists() else []

    def metrics(self, name: str = "tiny") -> list[dict[str, float]]:
        """The lines of a run's metrics.jsonl."""
        lines = (self.run(name) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def weights(self, name: str = "tiny") -> bytes:
        """The weights of a run's last checkpoint."""
        last = sorted((self.run(name) / "checkpoints").glob("step_*"))[-1]
        return (last / "model.safetensors").read_bytes()

    def board_steps(self, name: str = "tiny") -> Mapping[str, list[int]]:
        """Every tag of a run's event files with its steps, in the order they were written."""
        steps: dict[str, list[int]] = {}
        for tag, step, _ in self._board(name):
            steps.setdefault(tag, []).append(step)
        return steps

    def board_image(self, tag: str, step: int, name: str = "tiny") -> bytes:
        """The PNG of a tag at a step."""
        (image,) = (image for t, s, image in self._board(name) if (t, s) == (tag, step))
        return image

    def _board(self, name: str) -> Iterator[tuple[str, int, bytes]]:
        for path in sorted((self.run(name) / "tensorboard").iterdir()):
            for event in EventFileLoader(str(path)).Load():
                for value in event.summary.value:
                    texts = value.tensor.string_val
                    yield value.tag, event.step, texts[2] if len(texts) > 2 else b""


@pytest.fixture(autouse=True, scope="session")
def never_rarer() -> Iterator[None]:
    """Attention is looked at as planned, though these runs take less time than looking does."""
    with mock.patch("cli.inspection_schedule.FREE_SECONDS", float("inf")):
        yield


@pytest.fixture(scope="session")
def new_workspace() -> type[Workspace]:
    """Makes a workspace of a folder."""
    return Workspace


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    """A workspace to do anything in."""
    return Workspace(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace to read only: runs of every tokenizer and of a task, whose texts are gone."""
    workspace = Workspace(tmp_path_factory.mktemp("trained"))
    for tokenizer in ("bpe", "byte", "char"):
        size = {"data__vocab_size": 277} if tokenizer == "bpe" else {}
        assert workspace.train("--name", tokenizer, data__tokenizer=tokenizer, **size).code == 0
    workspace.write("task.yaml", TINY.replace("{source: tiny.txt, tokenizer: char}", "{source: induction}"))
    assert workspace.attn("train", "task.yaml").code == 0
    (workspace.folder / "tiny.txt").rename(workspace.folder / "other.txt")
    return workspace
