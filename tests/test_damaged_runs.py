"""Runs that are damaged, swapped, forged, foreign or newer: refused with the name of the file, and nothing executed."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from data.tokenizer import char_tokenizer
from tests.model.test_attention import awakened
from tests.test_run_folder import SMALL, make_run, refusal
from transformer import open_run
from transformer.files import FORMAT, digest, read_json, write_json, write_text
from transformer.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["model.safetensors", "checkpoint.json"])
def test_a_missing_file_of_a_checkpoint_is_named(run: RunFolder, file: str) -> None:
    path = run.checkpoint_path(7) / file
    path.unlink()
    assert refusal(lambda: open_run(run.path)).startswith(f"{path}: cannot be read")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def swap(path: Path) -> None:
    """Put the file of another run in its place."""
    other = make_run(path.parents[3] / "other", seed=100)
    shutil.copyfile(other.checkpoint_path(7) / path.name, path)


@pytest.mark.parametrize("spoil", [flip_a_bit, truncate, swap, lambda path: path.write_bytes(b"")])
def test_weights_that_are_not_the_written_ones_are_refused_by_name(
    run: RunFolder, spoil: Callable[[Path], object]
) -> None:
    path = run.checkpoint_path(7) / "model.safetensors"
    spoil(path)
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{path}: damaged, or from another checkpoint")
    assert open_run(run.path, "last").step == 11


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"step": 7}', b'{"format": "1"}']
)
@pytest.mark.parametrize("file", ["step_00000007/checkpoint.json", "best.json"])
def test_a_json_file_that_is_no_record_of_ours_is_refused_by_name(run: RunFolder, file: str, content: bytes) -> None:
    path = run.checkpoints_folder / file
    path.write_bytes(content)
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{path}: ")
    assert "cannot be read" in message or "not written by this program" in message


@pytest.mark.parametrize("file", ["step_00000007/checkpoint.json", "best.json"])
def test_a_newer_format_is_refused_with_both_numbers(run: RunFolder, file: str) -> None:
    path = run.checkpoints_folder / file
    write_json(path, {**read_json(path), "format": FORMAT + 1})
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{path}: has format {FORMAT + 1}, and this version reads up to {FORMAT}")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"step": 8}, "not the record of step 7"),
        ({"step": None}, "not the record of step 7"),
        ({"vocab_size": "13"}, "not the record of step 7"),
        ({"model": None}, "no valid model configuration"),
        ({"model": {"d_model": 12, "wings": 2}}, "no valid model configuration"),
        ({"digests": None}, "has no digest of model.safetensors"),
        ({"digests": {}}, "has no digest of model.safetensors"),
    ],
)
def test_a_record_that_lacks_something_is_refused_by_name(
    run: RunFolder, change: dict[str, object], fault: str
) -> None:
    path = run.checkpoint_path(7) / "checkpoint.json"
    write_json(path, {**read_json(path), **change})
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{path}: {fault}")


def test_a_pointer_to_nothing_is_refused_by_name(run: RunFolder) -> None:
    run.point("best", 5, 1.0)
    assert "no checkpoint of step 5" in refusal(lambda: open_run(run.path))
    write_json(run.checkpoints_folder / "best.json", {"format": FORMAT, "step": "7"})
    assert refusal(lambda: open_run(run.path)) == f"{run.checkpoints_folder / 'best.json'}: names no step and loss"


def test_weights_of_another_shape_are_refused_by_the_name_of_a_tensor(run: RunFolder) -> None:
    path = run.checkpoint_path(7) / "checkpoint.json"
    write_json(path, {**read_json(path), "model": SMALL.model_copy(update={"d_ff": 17}).model_dump()})
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{path.with_name('model.safetensors')}: does not fit its configuration")
    assert "blocks.0.feed_forward.down.weight is (12, 48), expected (12, 17) (2 tensors differ)" in message


def test_a_tokenizer_of_another_run_is_refused_with_both_sizes(run: RunFolder) -> None:
    write_text(run.tokenizer_file, char_tokenizer("abc").to_str())
    message = refusal(lambda: open_run(run.path))
    assert message.startswith(f"{run.tokenizer_file}: has 3 tokens")
    assert "trained with 13" in message


@pytest.mark.parametrize("content", ["", "{}", "no json", '{"version": "1.0", "model": {"type": "Telepathy"}}'])
def test_a_damaged_tokenizer_is_refused_by_name(run: RunFolder, content: str) -> None:
    run.tokenizer_file.write_text(content, encoding="utf-8")
    assert refusal(lambda: open_run(run.path)).startswith(f"{run.tokenizer_file}: no tokenizer, or a damaged one")


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return (os.mkdir, (self.path, 0o700))


@pytest.mark.parametrize("with_digest", [False, True])
@pytest.mark.parametrize("file", ["model.safetensors", "training.safetensors"])
@pytest.mark.parametrize("pickled", [pickle.dump, torch.save])
def test_a_pickle_is_refused_unexecuted_whatever_its_name(
    run: RunFolder, tmp_path: Path, pickled: Callable[..., None], file: str, with_digest: bool
) -> None:
    path, sprung = run.checkpoint_path(7) / file, tmp_path / "sprung"
    with path.open("wb") as stream:
        pickled(Trap(str(sprung)), stream)
    if with_digest:  # as a forger would do it
        record = path.with_name("checkpoint.json")
        digests = read_json(record)["digests"]
        write_json(record, {**read_json(record), "digests": {**digests, file: digest(path)}})
    assert refusal(lambda: run.checkpoint(7).read_tensors(file)).startswith(f"{path}: ")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(str(sprung))))
    assert sprung.exists()  # the trap works


def test_the_newest_whole_checkpoint_is_found_and_broken_ones_are_named(run: RunFolder) -> None:
    told: list[str] = []
    assert run.newest_valid(told.append).step == 11
    assert told == []
    flip_a_bit(run.checkpoint_path(11) / "training.safetensors")
    (run.checkpoint_path(7) / "checkpoint.json").unlink()
    assert run.newest_valid(told.append).step == 3
    assert [str(run.checkpoint_path(step)) in text for step, text in zip((11, 7), told, strict=True)] == [True, True]
    truncate(run.checkpoint_path(3) / "model.safetensors")
    assert "has no whole checkpoint" in refusal(lambda: run.newest_valid(lambda _: None))


def test_a_step_that_breaks_twice_is_kept_twice(run: RunFolder) -> None:
    for _ in range(2):
        run.write_checkpoint(13, {"vocab_size": 13}, {"model.safetensors": {}, "training.safetensors": {}})
        truncate(run.checkpoint_path(13) / "model.safetensors")
        assert run.newest_valid(lambda _: None).step == 11
    names = {path.name for path in run.checkpoints_folder.glob("*.broken*")}
    assert names == {"step_00000013.broken", "step_00000013.broken2"}


def test_an_extra_tensor_is_refused(run: RunFolder) -> None:
    path = run.checkpoint_path(7) / "model.safetensors"
    save_file({**awakened(SMALL).state_dict(), "wings": torch.ones(2)}, path)
    record = path.with_name("checkpoint.json")
    digests = read_json(record)["digests"]
    write_json(record, {**read_json(record), "digests": {**digests, path.name: digest(path)}})
    assert "wings is (2,), expected no such tensor" in refusal(lambda: open_run(run.path))
