"""What `attn train` records of attention: when, on what, that a resumed run goes on with it, and what that costs."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from cli import inspection_report
from cli.config_file import load_config
from cli.inspection_report import InspectionReport, planned
from cli.inspection_schedule import FREE_SECONDS, spread_steps
from cli.material import gather
from cli.probe import TEXT_ROWS
from transformer import attention_maps, open_run
from transformer.inspection.map_file import decode_maps
from transformer.inspection.probe import measure
from transformer.inspection.record import Record

LONG_RUN = {"training__max_steps": 40, "training__eval_every": 20, "training__keep_checkpoints": 9}


def record_of(work, name: str = "tiny") -> Record:
    return Record(work.run(name) / "inspection")


def scored(work, name: str = "tiny") -> list[int]:
    """The steps of a run's scores, as they are written."""
    return [report.step for report in record_of(work, name).reports()]


# What is recorded, and when


def test_maps_and_scores_are_those_of_the_checkpoints(work):
    work.train(training__keep_checkpoints=9, inspection__maps=20)
    record, line = record_of(work), json.loads((work.run() / "inspection" / "scores.jsonl").read_text().splitlines()[5])
    assert line["step"] == 5
    run, probe = open_run(work.run(), 5), record.read_probe().probe()
    _, maps = decode_maps(record.read_maps(5))
    expected = attention_maps(run.model, probe.sentence[None])[:, 0].flatten(0, 1).numpy()
    np.testing.assert_allclose(maps, expected, atol=1e-5)
    measured = measure(run.model, probe)
    for name, values in measured.scores.items():
        np.testing.assert_allclose(line["scores"][name], values, rtol=1e-4, atol=1e-6)


def test_maps_are_recorded_at_log_spaced_steps_and_scores_with_every_map_and_picture(work):
    work.train(inspection__maps=6, inspection__images=4, **LONG_RUN)
    assert record_of(work).map_steps() == list(spread_steps(40, 6))
    assert scored(work) == sorted({*spread_steps(40, 6), *spread_steps(40, 4)})
    assert work.board_steps()["attention/copy_gap"] == scored(work)
    assert work.board_steps()["scores/induction"] == list(spread_steps(40, 4))[1:]  # at step 0 all heads are alike


@pytest.mark.parametrize(
    ("settings", "maps", "scores"),
    [
        ({"maps": 0, "every": 4}, [], [0, 4, 8, 10]),
        ({"maps": 2, "every": 4}, [0, 10], [0, 4, 8, 10]),
        ({"maps": 1}, [10], [10]),
        ({"maps": 2, "every": 11}, [0, 10], [0, 10]),
        ({"maps": 99}, list(range(11)), list(range(11))),
        ({"maps": 0}, [], []),
    ],
)
def test_scores_are_measured_every_so_many_steps_as_well(work, settings, maps, scores):
    work.train(inspection__images=0, **{f"inspection__{key}": value for key, value in settings.items()})
    assert (record_of(work).map_steps(), scored(work)) == (maps, scores)


def test_a_run_that_is_not_looked_at_has_no_record(work):
    work.train(inspection__images=0, inspection__maps=0)
    assert not (work.run() / "inspection").exists()
    assert not any(tag.startswith(("attention/", "scores/")) for tag in work.board_steps())


def test_a_run_that_stops_early_records_its_last_step(work):
    work.train(inspection__maps=3, training__max_steps=1000, training__target_loss=100)
    assert record_of(work).map_steps() == [0, 5]
    assert scored(work) == [0, 5]


@pytest.mark.parametrize(("tokens", "shown"), [(3, 3), (1, 1), (1000, 16)])
def test_the_sentence_is_as_long_as_is_wanted_and_as_the_context_allows(work, tokens, shown):
    work.train(inspection__probe_tokens=tokens, inspection__probe_text="the quick brown fox")
    probe = record_of(work).read_probe()
    assert "".join(token.text for token in probe.tokens) == "the quick brown fox"[:shown]
    assert decode_maps(record_of(work).read_maps(10))[0].tokens == shown


def test_characters_of_several_bytes_are_grouped(work):
    work.train(data__tokenizer="byte", inspection__probe_text="a나🙂", inspection__probe_tokens=9)
    probe = record_of(work).read_probe()
    assert probe.groups == [(1, 4, "나"), (4, 8, "🙂")]
    assert [token.bytes for token in probe.tokens] == [None, "eb", "82", "98", "f0", "9f", "99", "82"]


def test_the_rows_of_text_are_spread_over_the_validation_text_and_never_overlap(work, monkeypatch):
    monkeypatch.setenv("ATTN_CACHE_DIR", str(work.folder / "cache"))
    probe = gather(load_config(work.folder / "tiny.yaml", [f"data.source={work.folder / 'tiny.txt'}"])).probe
    text = (work.folder / "tiny.txt").read_text(encoding="utf-8")
    vocabulary, validation = sorted(set(text)), text[int(0.9 * len(text)) :]
    assert probe.text.shape == (TEXT_ROWS[1], 16)
    places = [validation.index("".join(vocabulary[id] for id in row)) for row in probe.text.tolist()]
    assert places[0] == 0
    assert places[-1] == len(validation) - 16
    assert all(later - earlier >= 16 for earlier, later in pairwise(places))


# A record that cannot be written


def delete(folder: Path) -> None:
    shutil.rmtree(folder)


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def block_maps(folder: Path) -> None:
    shutil.rmtree(folder / "maps")
    (folder / "maps").write_bytes(b"")


def fill_the_disk(folder: Path) -> None:
    (folder / "scores.jsonl").unlink()
    (folder / "scores.jsonl").symlink_to("/dev/full")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize("spoil", [delete, replace_by_a_file, block_maps, fill_the_disk])
def test_a_record_that_cannot_be_written_is_said_once_and_training_goes_on(work, monkeypatch, spoil):
    on_step = inspection_report.InspectionReport.on_step

    def spoiled(report, event):
        if event.step == 5:
            spoil(work.run() / "inspection")
        on_step(report, event)

    settings = {"inspection__maps": 20, "inspection__every": 1}
    work.train("--name", "whole", **settings)
    monkeypatch.setattr(inspection_report.InspectionReport, "on_step", spoiled)
    result = work.train(**settings)
    assert result.code == 0
    assert result.err.count("step 5 · attention is looked at no more, since that failed: ") == 1
    assert "training goes on" in result.err
    assert work.weights() == work.weights("whole")
    assert [line["step"] for line in work.metrics()] == [line["step"] for line in work.metrics("whole")]


# A run that goes on


def test_what_a_kill_left_of_later_steps_is_recorded_again_once(work):
    settings = {"inspection__maps": 7, "inspection__every": 3, "training__keep_checkpoints": 3}
    work.train("--name", "whole", **settings)
    work.train(**settings)
    shutil.rmtree(work.run() / "checkpoints" / "step_00000010")
    record = record_of(work)
    with record.scores_file.open("ab") as file:
        file.write(b'{"format":1,"step":11,"sco')
    assert "resuming at step 5" in work.train("--resume", **settings).err
    assert scored(work) == scored(work, "whole")
    assert record.map_steps() == record_of(work, "whole").map_steps()
    for step in record.map_steps():
        assert record.read_maps(step) == record_of(work, "whole").read_maps(step)
    assert work.board_steps() == work.board_steps("whole")


def test_a_resumed_run_is_measured_on_what_it_began_with(work):
    work.train(training__max_steps=5)
    before = record_of(work).probe_file.read_bytes()
    assert work.train("--resume", inspection__probe_text="a lazy dog", inspection__probe_tokens=3).code == 0
    assert record_of(work).probe_file.read_bytes() == before
    assert len(record_of(work).view("tiny")["frames"]) == 3


def test_a_run_that_begins_to_be_looked_at_later_has_a_record_from_there(work):
    work.train(training__max_steps=5, inspection__images=0, inspection__maps=0)
    assert work.train("--resume", inspection__maps=20).code == 0
    assert record_of(work).map_steps() == [6, 7, 8, 9, 10]


def test_resuming_a_finished_run_records_nothing(work):
    work.train(inspection__every=1)
    before = {path: path.read_bytes() for path in record_of(work).path.rglob("*.*")}
    assert work.train("--resume", inspection__every=1).code == 0
    assert {path: path.read_bytes() for path in record_of(work).path.rglob("*.*")} == before


def spoil_heads(probe: dict[str, object]) -> None:
    probe["n_heads"] = 3


def spoil_ids(probe: dict[str, object]) -> None:
    probe["text"] = [[10**6]]


def spoil_length(probe: dict[str, object]) -> None:
    probe["repeats"], probe["periods"] = [[0] * 17], [1]


@pytest.mark.parametrize("spoil", [dict.clear, spoil_heads, spoil_ids, spoil_length])
def test_a_probe_that_does_not_belong_to_the_model_is_refused_until_it_is_removed(work, spoil):
    work.train(training__max_steps=5)
    path = record_of(work).probe_file
    probe = json.loads(path.read_bytes())
    spoil(probe)
    path.write_text(json.dumps({"format": 1, **probe}), encoding="utf-8")
    message = work.train("--resume").refused()
    assert str(path.relative_to(work.folder)) in message
    assert "remove the folder" in message
    shutil.rmtree(path.parent)
    assert work.train("--resume").code == 0


# It changes nothing, and takes little


def test_the_random_numbers_of_training_are_left_alone(work, monkeypatch):
    states = {}
    look = inspection_report.InspectionReport._look

    def watched(self, step, kinds):
        before = torch.get_rng_state(), np.random.get_state()[1].copy()
        look(self, step, kinds)
        states[step] = torch.equal(before[0], torch.get_rng_state()) and (before[1] == np.random.get_state()[1]).all()

    monkeypatch.setattr(inspection_report.InspectionReport, "_look", watched)
    work.train(inspection__maps=20, model__dropout=0.2)
    assert states == dict.fromkeys(range(11), True)


def test_layers_that_tensorboard_does_not_show_are_said_once(work, monkeypatch):
    monkeypatch.setattr("transformer.inspection.tensorboard_tags.SHOWN_LAYERS", 2)
    said = work.train(model__n_layers=3).err
    assert said.count("TensorBoard's charts and pictures show 2 of the 3 layers") == 1
    tags = work.board_steps().keys()
    assert [layer for layer in range(3) if f"attention/layer_{layer}" in tags] == [0, 2]
    assert "of the 2 layers" not in work.train("--name", "two", model__n_layers=2).err


def test_a_run_says_in_one_line_that_it_looks_less_often(work, monkeypatch):
    monkeypatch.setattr("cli.inspection_schedule.FREE_SECONDS", 0.0)
    said = work.train(inspection__every=1, **LONG_RUN).err
    lines = [line for line in said.splitlines() if "attention is looked at less often" in line]
    assert 1 <= len(lines) <= 3
    assert {scored(work)[0], scored(work)[-1]} == {0, 40}
    assert len(scored(work)) < 20


def test_a_plan_reaches_from_the_first_to_the_last_step(work):
    config = load_config(work.folder / "tiny.yaml", ["inspection.maps=3", "inspection.every=4"])
    at = {0, 4, 5, 8, 10}
    whole = {"knock-outs": at - {0}, "scores": at, "score pictures": {10}, "maps": {0, 5, 10}, "pictures": {0, 10}}
    assert planned(config, [], [], first_step=0) == whole
    rest = {"knock-outs": {8, 10}, "scores": {8, 10}, "score pictures": {10}, "maps": {10}, "pictures": {10}}
    assert planned(config, [0, 5], [0], first_step=5) == rest


# Minutes


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_and_open_files_stay_flat_over_5000_measured_steps(work):
    """A process of its own: pytest keeps what is said, which grows."""
    (work.folder / "watch.py").write_text(WATCH, encoding="utf-8")
    settings = ["training.max_steps=5000", "training.eval_every=5000", "inspection.every=1", "logging.sample_tokens=0"]
    command = [sys.executable, "watch.py", "train", "tiny.yaml", *(f"--set={setting}" for setting in settings)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command,
        cwd=work.folder,
        env=work.environment | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = np.array(json.loads((work.folder / "seen.json").read_text(encoding="utf-8")))
    assert len(scored(work)) == 5001
    steps, kilobytes, files = seen[(seen[:, 0] >= 1000) & (seen[:, 0] < 5000)].T  # the last step draws and saves
    growth = np.polyfit(steps, kilobytes, 1)[0] * 4000
    print(f"grows by {growth:.0f} kB in 4000 steps, of {kilobytes[0]} kB")  # noqa: T201
    assert growth < 2000
    assert len(set(files)) == 1


WATCH = r"""
import json, os, re
from pathlib import Path
import cli.inspection_schedule, cli.reporter
from cli.__main__ import main

cli.inspection_schedule.FREE_SECONDS = float("inf")
handle, seen = cli.reporter.Reporter.handle, []

def watch(self, event):
    handle(self, event)
    if event.step % 100 == 0:
        status = Path("/proc/self/status").read_text()
        seen.append((event.step, int(re.findall(r"VmRSS:\s+(\d+)", status)[0]), len(os.listdir("/proc/self/fd"))))

cli.reporter.Reporter.handle = watch
try:
    main()
finally:
    Path("seen.json").write_text(json.dumps(seen))
"""


@pytest.mark.long
def test_looking_takes_two_percent_of_300_steps_and_changes_nothing(work, monkeypatch):
    """One run without and three with; `pytest -m long -k two_percent -s` prints what was measured.

    The time of all looks is compared with that of the whole command: the difference of two commands would drown in
    the noise of the machine, which is several times as large.
    """
    monkeypatch.setattr("cli.inspection_schedule.FREE_SECONDS", FREE_SECONDS)
    looked: list[float] = []
    look = InspectionReport._look

    def timed_look(report, step, kinds):
        started = time.perf_counter()
        look(report, step, kinds)
        looked.append(time.perf_counter() - started)

    monkeypatch.setattr(InspectionReport, "_look", timed_look)
    config = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
    settings = ["training.max_steps=300", "training.eval_every=300", "logging.sample_tokens=0"]
    settings += ["data.tokenizer=char", "data.vocab_size=null", "model.context_length=64", "training.batch_size=32"]
    shares = []
    for name, more in (("off", ["inspection.images=0", "inspection.maps=0"]), ("1", []), ("2", []), ("3", [])):
        looked.clear()
        started = time.perf_counter()
        said = work.attn("train", str(config), f"--name={name}", *(f"--set={one}" for one in settings + more))
        assert said.code == 0, said.err
        shares.append(sum(looked) / (time.perf_counter() - started))
        assert work.weights(name) == work.weights("off")
        losses = [[line.get("loss/train") for line in work.metrics(one)] for one in (name, "off")]
        assert losses[0] == losses[1]
    print("looking took", ", ".join(f"{share:.2%}" for share in shares), "of the command")  # noqa: T201
    assert shares[0] == 0
    assert statistics.median(shares[1:]) <= 0.02
