"""`attn runs`: every run in a table or as JSON; a broken one is named and stops nothing."""

import json
import shutil

import pytest

from transformer import open_run


def test_json_carries_every_promised_key(trained):
    result = trained.attn("runs", "--json")
    rows = json.loads(result.out)
    assert result.err == ""
    assert [row["name"] for row in rows] == ["bpe", "byte", "char", "task"]
    for row in rows:
        assert {"name", "parameters", "step", "best_loss", "best_step", "path"} <= row.keys()
        logged = [line for line in trained.metrics(row["name"]) if "loss/validation" in line]
        best = min(logged, key=lambda line: line["loss/validation"])
        assert (row["best_loss"], row["best_step"]) == (best["loss/validation"], best["step"])
        assert row["step"] == 10
        assert row["path"] == f"runs/{row['name']}"
        model = open_run(trained.folder / row["path"]).model
        assert row["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_the_table_has_a_line_a_run(trained):
    lines = trained.attn("runs").out.splitlines()
    assert lines[0].split() == ["name", "parameters", "step", "best", "loss", "best", "step", "when"]
    assert [line.split()[0] for line in lines[1:]] == ["bpe", "byte", "char", "task"]
    assert len({line.index(line.split()[-2]) for line in lines[1:]}) == 1, "columns are aligned"


def test_without_runs_it_says_how_to_get_one(work):
    result = work.attn("runs")
    assert (result.code, result.out) == (0, "")
    assert "holds no run yet; train one with `attn train CONFIG`" in result.err
    assert json.loads(work.attn("runs", "--json").out) == []


def test_a_run_before_its_first_checkpoint_is_listed(work):
    work.run("young").mkdir(parents=True)
    (work.run("young") / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    (row,) = json.loads(work.attn("runs", "--json").out)
    assert (row["name"], row["step"], row["parameters"], row["best_loss"]) == ("young", None, None, None)
    assert work.attn("runs").out.splitlines()[1].split()[:5] == ["young", "-", "-", "-", "-"]


@pytest.mark.parametrize("file", ["last.json", "best.json", "step_00000010/checkpoint.json"])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 99, "step": 10, "loss": 1.0}',
        '{"format": 1, "step": "x"}',
        "\udcff",
    ],
)
def test_a_broken_run_is_named_and_the_others_are_listed(trained, work, file, content):
    for name in ("broken", "whole"):
        shutil.copytree(trained.run("char"), work.run(name))
    (work.run("broken") / "checkpoints" / file).write_text(content, encoding="utf-8", errors="surrogateescape")
    result = work.attn("runs", "--json")
    assert result.code == 0, result.err
    assert [row["name"] for row in json.loads(result.out)] == ["whole"]
    assert result.err.startswith("runs/broken: skipped: ")
    assert "Traceback" not in result.err


def test_what_is_no_run_is_not_listed(work):
    (work.folder / "runs" / "notes").mkdir(parents=True)
    work.write("runs/file.txt", "no run")
    assert json.loads(work.attn("runs", "--json").out) == []


def test_a_folder_with_a_hostile_name_cannot_write_to_the_terminal(work):
    work.run("\x1b[31mred").mkdir(parents=True)
    (work.run("\x1b[31mred") / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    assert work.attn("runs").out.splitlines()[1].split()[0] == r"\x1b[31mred"
