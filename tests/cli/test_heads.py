"""`attn heads`: the table a person reads and the list a program reads."""

import json
import shutil

import pytest
import torch

from tests.cli.conftest import Workspace
from transformer import attention_maps, open_run
from transformer.inspection.probe import NAMES
from transformer.inspection.record import Record


def test_json_lists_every_head_with_its_numbers_beside_the_baseline(trained: Workspace) -> None:
    result = trained.attn("heads", "char", "--json")
    heads = json.loads(result.out)
    assert [(head["layer"], head["head"]) for head in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in heads:
        assert set(head) == {"layer", "head", "scores", "baseline", "interval", "badges", "knockout"}
        assert set(head["scores"]) == set(NAMES)
        assert head["knockout"] == head["scores"]["knockout"]
        assert head["baseline"]["entropy"] == pytest.approx(1)
        for name, (low, high) in head["interval"].items():
            assert low <= head["scores"][name] <= high


def test_a_score_is_that_of_the_checkpoint_on_the_probe_of_the_run(trained: Workspace) -> None:
    run = open_run(trained.run("task"), "last")
    repeats = Record(run.folder.inspection_folder).read_probe().probe().repeats
    maps = attention_maps(run.model, repeats)
    expected = torch.stack([maps[..., i, i - 1] for i in range(2, maps.shape[-1])]).mean(dim=(0, 2))
    heads = json.loads(trained.attn("heads", "task", "--checkpoint", "last", "--json").out)
    scores = torch.tensor([head["scores"]["previous_token"] for head in heads])
    torch.testing.assert_close(scores, expected.flatten(), atol=1e-6, rtol=0)


def test_the_table_has_two_lines_a_head_and_one_of_a_uniform_head(trained: Workspace) -> None:
    lines = trained.attn("heads", "char").out.splitlines()
    assert [line.split()[0] for line in lines[1:10:2]] == ["0.0", "0.1", "1.0", "1.1", "uniform"]
    assert any(line.startswith("copy gap") for line in lines)
    assert any(line.startswith("in context") for line in lines)


@pytest.mark.parametrize("name", ["bpe", "task"])
def test_a_run_that_recorded_nothing_is_measured_on_the_probe_it_would_have_had(
    trained: Workspace, work: Workspace, name: str
) -> None:
    shutil.copytree(trained.run(name), work.run(name))
    shutil.rmtree(work.run(name) / "inspection")
    assert work.attn("heads", name, "--json").out == trained.attn("heads", name, "--json").out


def test_the_command_changes_no_file_of_the_run(trained: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.run("byte").rglob("*")}
    assert trained.attn("heads", "byte").code == 0
    assert {path: path.stat().st_mtime_ns for path in trained.run("byte").rglob("*")} == before


def test_a_run_that_is_not_there_is_named(trained: Workspace) -> None:
    assert "nothing" in trained.attn("heads", "nothing").refused()
