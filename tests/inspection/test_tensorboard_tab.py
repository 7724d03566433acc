"""The tab Attention, asked of a real TensorBoard process that knows no more than its log folder."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

from transformer.inspection.map_file import decode_maps
from transformer.inspection.record import Record, StoredProbe
from transformer.inspection.tensorboard_tab import PAGE, find_records, named_roots

TOKENS = 5
PROBE = StoredProbe.model_validate(
    {
        "n_layers": 2,
        "n_heads": 3,
        "sentence": [7, 11, 13, 7, 11],
        "tokens": [{"text": text, "bytes": None, "special": False} for text in ("a", "</script>", " ", "a", "나")],
        "groups": [],
        "repeats": [[1, 2, 1, 2, 1]],
        "periods": [2],
        "text": [[3, 5, 7, 11, 13]],
        "baseline": {"entropy": 1.0},
    }
)


def maps_of(step: int) -> np.ndarray:
    """Weights that differ from step to step: (2, 3, T, T)."""
    weights = np.tril(np.random.default_rng(step).random((2, 3, TOKENS, TOKENS))).astype(np.float32)
    return weights / weights.sum(-1, keepdims=True)


def write_record(run: Path, *steps: int) -> Record:
    """A run's folder with a record of some steps, written by hand."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").touch()
    record = Record(run / "inspection")
    record.write_probe(PROBE)
    for step in steps:
        record.write_maps(step, maps_of(step))
    return record


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Board:
    """A TensorBoard that runs."""

    address: str

    def get(self, path: str, **headers: str) -> Answer:
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def tab(self, path: str, **parameters: object) -> Answer:
        return self.get(f"data/plugin/attention/{path}?{urllib.parse.urlencode(parameters)}")

    def json(self, path: str, **parameters: object) -> dict:
        return json.loads(self.tab(path, **parameters).body)


@contextmanager
def tensorboard(*options: str, environment: dict[str, str] | None = None) -> Iterator[Board]:
    command = [sys.executable, "-m", "tensorboard.main", *options, "--port=0", "--host=127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | (environment or {})) as process:
        try:
            assert process.stderr is not None
            address = next(match[0] for line in process.stderr if (match := re.search(r"http://\S+/", line)))
            yield Board(address)
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_record(folder / "first", 0, 500)
    write_record(folder / "group" / "나는 run", 3)
    return folder


@pytest.fixture(scope="module")
def board(runs) -> Iterator[Board]:
    with tensorboard("--logdir", str(runs)) as running:
        yield running


def test_the_stock_command_lists_the_tab(board):
    listing = json.loads(board.get("data/plugins_listing").body)["attention"]
    assert listing["enabled"] is True
    assert listing["tab_name"] == "Attention"
    assert listing["loading_mechanism"] == {"type": "IFRAME", "module_path": "/data/plugin/attention/index.js"}
    assert b"index.js" in board.get("data/plugin_entry.html?name=attention").body


@pytest.mark.parametrize("file", sorted(path.name for path in PAGE.iterdir() if path.suffix in (".js", ".css")))
def test_every_file_of_the_page_is_served_as_it_is(board, file):
    answer = board.tab(file)
    assert answer.status == 200
    assert answer.body == (PAGE / file).read_bytes()
    kind = "text/javascript" if file.endswith(".js") else "text/css"
    assert answer.headers["Content-Type"].startswith(kind)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["..%2ftensorboard_tab.py", "../tensorboard_tab.py", "nothing.js", "%2fetc%2fpasswd", "page/index.js"]
)
def test_no_other_file_is(board, path):
    assert board.tab(path).status == 404


def test_runs_are_listed_with_their_steps(board, runs):
    answer = board.tab("runs")
    assert answer.headers["Content-Type"].startswith("application/json")
    assert "no-cache" in answer.headers["Cache-Control"]
    listed = {run["name"]: run for run in json.loads(answer.body)["runs"]}
    assert {name: run["steps"] for name, run in listed.items()} == {"first": [0, 500], "group/나는 run": [3]}
    assert listed["first"]["changed"] == Record(runs / "first" / "inspection").changed


def test_a_view_is_the_record_without_its_maps(board, runs):
    for name in ("first", "group/나는 run"):
        view = board.json("view", run=name)
        assert view == Record(runs / name / "inspection").view(name, with_maps=False)
        assert view["tokens"][1]["text"] == "</script>"
        assert {frame["maps"] for frame in view["frames"]} == {None}


def test_maps_are_the_weights_and_are_sent_once(board):
    answer = board.tab("maps", run="first", step=500)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    _, weights = decode_maps(answer.body)
    assert weights.reshape(2, 3, TOKENS, TOKENS) == pytest.approx(maps_of(500), abs=1e-5)
    again = board.get("data/plugin/attention/maps?run=first&step=500", **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("path", "parameters", "status"),
    [
        ("view", {}, 400),
        ("view", {"run": ""}, 400),
        ("view", {"run": "nobody"}, 404),
        ("view", {"run": "../first"}, 404),
        ("maps", {"step": 0}, 400),
        ("maps", {"run": "first"}, 400),
        ("maps", {"run": "first", "step": "x"}, 400),
        ("maps", {"run": "first", "step": "-1"}, 400),
        ("maps", {"run": "first", "step": "²"}, 400),
        ("maps", {"run": "first", "step": 7}, 404),
        ("maps", {"run": "first", "step": "1" * 5000}, 404),
        ("maps", {"run": "first", "step": "../../etc"}, 400),
        ("maps", {"run": "nobody", "step": 0}, 404),
    ],
)
def test_what_cannot_be_answered_is_said_in_plain_text(board, path, parameters, status):
    answer = board.tab(path, **parameters)
    assert answer.status == status
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert b"Traceback" not in answer.body
    assert len(answer.body) > 10


def test_a_damaged_record_is_told_in_words_that_the_page_can_show(tmp_path):
    record = write_record(tmp_path / "good", 5)
    broken = write_record(tmp_path / "broken", 5)
    broken.map_file(5).write_bytes(b"no maps")
    lost = write_record(tmp_path / "lost")
    lost.probe_file.write_text("{", encoding="utf-8")
    with tensorboard("--logdir", str(tmp_path)) as board:
        assert {run["name"] for run in board.json("runs")["runs"]} == {"good", "broken", "lost"}
        assert board.json("view", run="good") == record.view("good", with_maps=False)
        for path, parameters in (("maps", {"run": "broken", "step": 5}), ("view", {"run": "lost"})):
            answer = board.tab(path, **parameters)
            assert answer.status == 500
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert str(tmp_path) in answer.body.decode()


def test_the_tab_wakes_when_the_first_record_is_written(tmp_path):
    with tensorboard("--logdir", str(tmp_path)) as board:
        assert json.loads(board.get("data/plugins_listing").body)["attention"]["enabled"] is False
        assert board.json("runs") == {"runs": []}
        record = write_record(tmp_path / "later", 0)
        assert json.loads(board.get("data/plugins_listing").body)["attention"]["enabled"] is True
        record.write_maps(9, maps_of(9))
        assert board.json("runs")["runs"][0]["steps"] == [0, 9]


def test_a_log_folder_that_is_a_run_has_its_own_name(tmp_path):
    write_record(tmp_path / "alone", 2)
    with tensorboard("--logdir", str(tmp_path / "alone")) as board:
        assert [run["name"] for run in board.json("runs")["runs"]] == ["alone"]
        assert board.tab("maps", run="alone", step=2).status == 200


def test_named_log_folders_have_their_names(tmp_path):
    write_record(tmp_path / "a", 2)
    write_record(tmp_path / "b" / "c", 2)
    with tensorboard("--logdir_spec", f"one:{tmp_path / 'a'},two:{tmp_path / 'b'}") as board:
        assert {run["name"] for run in board.json("runs")["runs"]} == {"one", "two/c"}


def names(root: Path) -> list[str]:
    return [name for name, _ in find_records(named_roots(str(root), ""))]


def test_linked_runs_are_found_and_a_circle_of_links_ends(tmp_path):
    write_record(tmp_path / "elsewhere" / "run", 2)
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "elsewhere" / "run")
    (tmp_path / "logs" / "deep" / "circle").symlink_to(tmp_path / "logs")
    assert names(tmp_path / "logs") == ["linked"]


def test_what_is_inside_a_run_is_not_looked_through(tmp_path):
    write_record(tmp_path / "run", 2)
    write_record(tmp_path / "run" / "checkpoints" / "copy", 2)
    (tmp_path / "bare" / "checkpoints").mkdir(parents=True)
    (tmp_path / "bare" / "config.yaml").touch()
    write_record(tmp_path / "bare" / "checkpoints" / "copy", 2)
    assert names(tmp_path) == ["run"]


def test_a_folder_that_is_not_there_has_no_runs(tmp_path):
    assert names(tmp_path / "missing") == []
    assert list(find_records(named_roots("", ""))) == []


def test_tensorboard_starts_as_quickly_as_before():
    code = (
        "import sys, time, tensorboard.default\n"
        "before = set(sys.modules)\n"
        "started = time.process_time()\n"
        "import transformer.inspection.tensorboard_tab\n"
        "print(time.process_time() - started)\n"
        "assert not {'torch', 'matplotlib', 'pydantic', 'numpy'} & (set(sys.modules) - before)\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    runs = [subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
            for _ in range(3)]  # fmt: skip
    assert min(float(done.stdout) for done in runs) < 0.1
