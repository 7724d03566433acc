"""Run folders: opening, writing, pruning, listing; and what is said where something is missing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from data.tokenizer import char_tokenizer
from tests.model.test_attention import awakened
from transformer import ModelConfig, open_run
from transformer.checkpoint_folder import Checkpoint
from transformer.errors import UserError
from transformer.files import write_text
from transformer.find_runs import find_run, list_runs
from transformer.run_folder import RunFolder

SMALL = ModelConfig(d_model=12, n_heads=2, n_layers=1, context_length=5)
VOCABULARY = "abcdefghijklm"


def make_run(path: Path, *, steps: tuple[int, ...] = (3, 7, 11), best: int | None = 7, seed: int = 0) -> RunFolder:
    """A run whose model of step n has the weights of seed `seed + n`."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    write_text(folder.config_file, "seed: 1\n")
    write_text(folder.tokenizer_file, char_tokenizer(VOCABULARY).to_str())
    for step in steps:
        record = {"model": SMALL.model_dump(), "vocab_size": len(VOCABULARY), "parameters": 1234}
        tensors = {
            "model.safetensors": awakened(SMALL, seed=seed + step).state_dict(),
            "training.safetensors": {"x/momentum": torch.full((2,), float(step))},
        }
        folder.write_checkpoint(step, record, tensors)
    if best is not None:
        folder.point("best", best, 1.25)
    folder.point("last", steps[-1], 1.5)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run")


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as error:
        action()
    return str(error.value)


@pytest.mark.parametrize(("which", "step"), [("best", 7), ("last", 11), (3, 3), (7, 7), (11, 11)])
def test_a_run_opens_at_its_best_its_last_or_any_step(run: RunFolder, which: str | int, step: int) -> None:
    opened = open_run(run.path, which)
    expected = awakened(SMALL, seed=step).state_dict()
    assert opened.step == step
    assert opened.config == SMALL
    assert all(torch.equal(value, expected[name]) for name, value in opened.model.state_dict().items())
    assert not opened.model.training
    assert opened.tokenizer.encode("cab").ids == [2, 0, 1]


def test_a_run_opens_at_its_best_by_default_and_from_anywhere(run: RunFolder, tmp_path: Path) -> None:
    shutil.move(run.path, tmp_path / "moved é 日")
    assert open_run(str(tmp_path / "moved é 日")).step == 7


def test_without_a_best_the_last_is_opened_and_without_pointers_the_newest(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", best=None)
    folder.point("last", 7, None)
    assert open_run(folder.path).step == 7
    (folder.checkpoints_folder / "last.json").unlink()
    assert open_run(folder.path).step == open_run(folder.path, "last").step == 11


def test_what_is_missing_is_said(run: RunFolder, tmp_path: Path) -> None:
    assert refusal(lambda: open_run(tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'}: no such run"
    (tmp_path / "empty").mkdir()
    assert refusal(lambda: open_run(tmp_path / "empty")) == f"{tmp_path / 'empty'}: has no checkpoint yet"
    assert "no checkpoint of step 5; there are 3, 7, 11" in refusal(lambda: open_run(run.path, 5))
    run.tokenizer_file.unlink()
    assert "it has no tokenizer.json" in refusal(lambda: open_run(run.path))


def test_writing_a_checkpoint_leaves_no_other_files(run: RunFolder) -> None:
    names = sorted(str(path.relative_to(run.checkpoints_folder)) for path in run.checkpoints_folder.rglob("*"))
    files = ["checkpoint.json", "model.safetensors", "training.safetensors"]
    folders = [f"step_{step:08d}" for step in (3, 7, 11)]
    assert names == sorted(
        ["best.json", "last.json", *folders, *(f"{folder}/{file}" for folder in folders for file in files)]
    )


def test_what_a_killed_process_left_behind_is_no_checkpoint_and_is_replaced(run: RunFolder) -> None:
    half = run.checkpoints_folder / ".step_00000013.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert run.steps() == [3, 7, 11]
    assert run.newest_valid(pytest.fail).step == 11
    run.write_checkpoint(13, {"vocab_size": 13}, {"model.safetensors": {}, "training.safetensors": {}})
    assert not half.exists()
    assert run.newest_valid(pytest.fail).step == 13


def test_a_disk_that_fills_while_saving_leaves_every_finished_checkpoint(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run.write_checkpoint(13, {"vocab_size": 13}, {"model.safetensors": {"x": torch.ones(3)}})
    with pytest.raises(OSError, match="No space left"):
        run.point("last", 13, None)
    monkeypatch.undo()
    assert run.steps() == [3, 7, 11]
    assert open_run(run.path, "last").step == 11


def test_a_checkpoint_that_training_replaces_while_it_is_read_is_read_anew(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tensors = Checkpoint.read_tensors

    def read_while_training(checkpoint: Checkpoint, name: str) -> dict[str, torch.Tensor]:
        if checkpoint.step == 7:
            run.point("best", 11, 1.0)
            run.prune(1)
        return read_tensors(checkpoint, name)

    monkeypatch.setattr(Checkpoint, "read_tensors", read_while_training)
    assert open_run(run.path).step == 11


def test_a_run_that_was_deleted_is_not_made_anew_by_saving(run: RunFolder) -> None:
    shutil.rmtree(run.path)
    said = refusal(lambda: run.write_checkpoint(13, {}, {}))
    assert str(run.path) in said
    assert "moved or deleted" in said
    assert not run.path.exists()


def test_writing_a_step_again_changes_its_record_only(run: RunFolder) -> None:
    before = (run.checkpoint_path(7) / "model.safetensors").read_bytes()
    run.write_checkpoint(7, {**run.checkpoint(7).record, "note": "new"}, {"model.safetensors": {"x": torch.ones(1)}})
    assert run.checkpoint(7).record["note"] == "new"
    assert (run.checkpoint_path(7) / "model.safetensors").read_bytes() == before
    run.checkpoint(7).verify()


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(1, 7, [7, 11]), (1, 11, [11]), (2, 3, [3, 7, 11]), (2, None, [7, 11]), (9, 7, [3, 7, 11])],
)
def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path, keep: int, best: int | None, left: list[int]) -> None:
    folder = make_run(tmp_path / "run", best=best)
    folder.prune(keep)
    assert folder.steps() == left


def test_discarding_later_checkpoints_takes_their_pointers_along(run: RunFolder) -> None:
    run.discard_after(7)
    assert run.steps() == [3, 7]
    assert run.pointer("last") is None
    assert run.pointer("best") is None
    run.discard_after(3)
    assert run.pointer("best") is None
    assert open_run(run.path).step == 3


def test_runs_are_listed_by_their_last_change_and_found_by_name_path_or_age(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for age, name in enumerate(("newest", "middle", "oldest")):
        folder = make_run(root / name)
        for file in (folder.config_file, folder.checkpoints_folder / "last.json"):
            os.utime(file, (1e9 - age, 1e9 - age))
    (root / "no run").mkdir()
    (root / "file").write_text("x", encoding="utf-8")
    assert [folder.name for folder in list_runs(root)] == ["oldest", "middle", "newest"]
    assert find_run(None, root).name == "newest"
    assert find_run("middle", root).path == root / "middle"
    assert find_run(str(root / "oldest"), tmp_path / "elsewhere").name == "oldest"
    message = refusal(lambda: find_run("mddle", root))
    assert message.startswith("mddle: no run folder")
    assert "oldest, middle, newest" in message


def test_where_there_is_no_run_the_way_to_one_is_shown(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "runs") == []
    assert "train one with `attn train CONFIG`" in refusal(lambda: find_run(None, tmp_path / "runs"))
    assert "(newest runs: none)" in refusal(lambda: find_run("x", tmp_path / "runs"))


def test_a_run_is_read_by_json_alone_without_torch(run: RunFolder) -> None:
    record = json.loads((run.checkpoint_path(7) / "checkpoint.json").read_text(encoding="utf-8"))
    assert (record["step"], record["vocab_size"], record["model"]["d_model"]) == (7, 13, 12)
    assert json.loads((run.checkpoints_folder / "best.json").read_text(encoding="utf-8"))["step"] == 7
    script = (
        "import sys; from pathlib import Path; from transformer.find_runs import list_runs; "
        "folder = list_runs(Path(sys.argv[1]))[0]; "
        "print(folder.pointer('best').loss, folder.checkpoint('last').record['parameters'], 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(run.path.parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert result.stdout.split() == ["1.25", "1234", "False"]


def test_no_file_of_a_run_is_a_pickle(run: RunFolder) -> None:
    for path in run.path.rglob("*"):
        if path.is_file():
            assert not path.read_bytes().startswith((b"\x80", b"PK"))
