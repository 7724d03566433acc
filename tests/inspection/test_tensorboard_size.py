"""Event files stay small however long a run is, and what matters stays in them."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from transformer.inspection import tensorboard
from transformer.inspection.event_files import discard_after, event_files
from transformer.inspection.event_room import MAX_BYTES, PICTURE_BYTES, SCALAR_BYTES, TEXT_BYTES, PictureRoom, Room
from transformer.inspection.tensorboard import TensorBoardWriter

LINE = {"loss/train": 1.0, "optimizer/learning_rate": 1.0, "optimizer/gradient_norm": 1.0, "speed/tokens_per_second": 1}
NOISE = np.random.default_rng(0)


def noise(height: int, width: int) -> Image.Image:
    """A picture that no compression makes smaller."""
    return Image.fromarray(NOISE.integers(0, 256, (height, width, 3), np.uint8))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def steps_of(folder: Path) -> dict[str, list[int]]:
    """Every tag with its steps, as they were written."""
    steps: dict[str, list[int]] = {}
    for path in event_files(folder):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


@pytest.fixture
def small(monkeypatch):
    """A cap that a test reaches: 250 kB."""
    monkeypatch.setattr(tensorboard, "MAX_BYTES", 250_000)
    monkeypatch.setattr(tensorboard, "PICTURE_BYTES", 120_000)
    monkeypatch.setattr(tensorboard, "TEXT_BYTES", 20_000)
    monkeypatch.setattr(tensorboard, "SCALAR_BYTES", 100_000)


def test_the_rooms_leave_something_for_firsts_and_lasts():
    assert MAX_BYTES - PICTURE_BYTES - SCALAR_BYTES - TEXT_BYTES >= 500_000
    assert MAX_BYTES <= 25e6


def test_ten_thousand_logged_steps_are_kept_whole(tmp_path):
    said: list[str] = []
    with TensorBoardWriter(tmp_path, say=said.append) as board:
        for step in range(1, 10_001):
            board.scalars(step, LINE)
    assert steps_of(tmp_path)["loss/train"] == list(range(1, 10_001))
    assert size_of(tmp_path) < 2_000_000
    assert said == []


def test_a_run_that_logs_too_much_is_thinned_out_and_reaches_its_end(tmp_path, small):
    said: list[str] = []
    with TensorBoardWriter(tmp_path, say=said.append) as board:
        for step in range(1, 10_001):
            board.scalars(step, LINE)
            if step % 500 == 0:
                board.scalars(step, {"loss/validation": 2.0}, important=True)
                board.text("sample", step, "x" * 2_003)
        board.scalars(10_001, {"a new tag": 1.0})
    assert size_of(tmp_path) <= 250_000
    steps = steps_of(tmp_path)
    assert steps["loss/train"][-1] == 10_000
    assert steps["loss/validation"] == list(range(500, 10_001, 500))
    assert steps["a new tag"] == [10_001]
    assert steps["sample"][0] == 500
    assert steps["sample"][-1] == 10_000
    gaps = [b - a for a, b in pairwise(steps["loss/train"])]
    assert gaps[0] == 1
    assert max(gaps) <= 10_000 // 8
    assert len(said) == 1
    assert "points of the charts" in said[0]


def test_even_evaluations_do_not_break_the_cap(tmp_path, small):
    with TensorBoardWriter(tmp_path) as board:
        for step in range(1, 10_001):
            board.scalars(step, {"loss/validation": 2.0}, important=True)
    assert size_of(tmp_path) <= 250_000
    assert steps_of(tmp_path)["loss/validation"][-1] == 10_000


def test_a_run_with_many_layers_draws_fewer_of_them_at_every_step(tmp_path, small):
    said: list[str] = []
    with TensorBoardWriter(tmp_path, say=said.append) as board:
        for step in range(10):
            layers = {f"attention/layer_{layer}": noise(17, 19) for layer in range(48)}
            board.pictures(step, layers)
    assert size_of(tmp_path) <= 250_000
    steps = steps_of(tmp_path)
    assert steps["attention/layer_0"] == list(range(10))
    assert {tuple(at) for at in steps.values()} == {tuple(range(10))}
    assert set(steps) == {f"attention/layer_{layer}" for layer in range(0, 48, 8)}
    assert len(said) == 1
    assert "pictures" in said[0]


def test_a_resumed_run_counts_what_is_there(tmp_path, small):
    for start in range(0, 10_000, 1_000):
        discard_after(tmp_path, start)
        with TensorBoardWriter(tmp_path) as board:
            for step in range(start + 1, start + 1_001):
                board.scalars(step, LINE)
            board.pictures(start, {"picture": noise(40, 50)})
    assert size_of(tmp_path) <= 250_000
    assert steps_of(tmp_path)["loss/train"][-1] == 10_000
    assert len(steps_of(tmp_path)["picture"]) == 10


def test_a_room_that_is_half_full_takes_every_second_then_every_fourth():
    room = Room(6_400)
    taken = []
    for number in range(400):
        if room.admits("line", 10):
            room.used += 10
            taken.append(number)
    assert taken[:320] == list(range(320))
    gaps = [b - a for a, b in pairwise(taken[320:])]
    assert gaps == sorted(gaps)
    assert gaps.count(2) == pytest.approx(10, abs=1)
    assert gaps.count(4) == pytest.approx(10, abs=1)


def test_every_step_has_its_share_of_the_room_for_pictures():
    room = PictureRoom(1_000)
    room.open(0)
    assert room.stride([60, 40]) == 1
    assert room.stride([60, 41]) == 2
    assert room.stride([101]) == 2
    room.take(60)
    room.open(0)
    assert room.stride([41]) == 2
    room.open(7)
    assert room.stride([100]) == 1
    assert room.stride([101]) == 2
