"""`attn train --resume`: a run goes on exactly where it stopped, and never as another one."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from cli.config_file import load_config
from cli.reporter import Reporter
from cli.train import stop_on_signals
from transformer.training.loop import Event, Step

EVERYTHING = {"model__dropout": 0.3, "training__gradient_accumulation": 2, "training__max_steps": 13}


def signal_at(monkeypatch: pytest.MonkeyPatch, step: int, number: int) -> None:
    """Send this process a signal when a step is reported."""
    handle = Reporter.handle

    def handle_and_signal(self: Reporter, event: Event) -> None:
        handle(self, event)
        if isinstance(event, Step) and event.step == step:
            signal.raise_signal(number)

    monkeypatch.setattr(Reporter, "handle", handle_and_signal)


def without_times(value: object) -> object:
    """Metrics or a record of a checkpoint without what the clock decides."""
    if isinstance(value, list):
        return [without_times(item) for item in value]
    if isinstance(value, dict):
        clocks = ("seconds", "speed/tokens_per_second")
        return {key: without_times(item) for key, item in value.items() if key not in clocks}
    return value


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_signal_saves_and_a_resumed_run_equals_an_unbroken_one(work, monkeypatch, number, code, optimizer):
    settings = EVERYTHING | {"training__optimizer": optimizer}
    work.train("--name", "whole", **settings)
    with monkeypatch.context() as patch:
        signal_at(patch, 7, number)
        stopped = work.train("--name", "broken", **settings)
    assert stopped.code == code
    assert "broken: interrupted and saved after step 7" in stopped.err
    assert "attn train runs/broken/config.yaml --name broken --resume" in stopped.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    resumed = work.attn("train", "runs/broken/config.yaml", "--name", "broken", "--resume")

    assert resumed.code == 0, resumed.err
    assert "resuming at step 7" in resumed.err
    whole, broken = (work.run(name) / "checkpoints" / "step_00000013" for name in ("whole", "broken"))
    for name in ("model.safetensors", "training.safetensors"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    records = (json.loads((path / "checkpoint.json").read_text(encoding="utf-8")) for path in (whole, broken))
    first, second = map(without_times, records)
    assert first == second
    assert without_times(work.metrics("whole")) == without_times(work.metrics("broken"))
    assert (work.run("whole") / "samples.md").read_bytes() == (work.run("broken") / "samples.md").read_bytes()
    assert work.board_steps("whole") == work.board_steps("broken")


def test_what_a_kill_left_of_later_steps_is_made_again_once(work):
    work.train("--name", "whole")
    work.train(training__keep_checkpoints=2)
    shutil.rmtree(work.run() / "checkpoints" / "step_00000010")
    with (work.run() / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 11, "loss/tr')
    with (work.run() / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\x00\n")
    assert "resuming at step 5" in work.train("--resume").err
    assert without_times(work.metrics()) == without_times(work.metrics("whole"))
    assert (work.run() / "samples.md").read_bytes() == (work.run("whole") / "samples.md").read_bytes()
    assert work.board_steps() == work.board_steps("whole")


def test_resuming_a_finished_run_adds_nothing(work):
    settings = {"training__patience": 1, "training__learning_rate": 1e-9, "inspection__images": 3}
    work.train(training__max_steps=40, training__optimizer="adamw", **settings)
    seen = work.weights(), work.metrics(), work.board_steps()
    for _ in range(2):
        assert work.train("--resume", training__max_steps=40, training__optimizer="adamw", **settings).code == 0
    assert (work.weights(), work.metrics(), work.board_steps()) == seen


@pytest.fixture
def stopped(work, monkeypatch):
    """A workspace whose run stopped at step 7 of 10."""
    with monkeypatch.context() as patch:
        signal_at(patch, 7, signal.SIGINT)
        assert work.train().code == 130
    return work


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"model__d_model": 24}, ["model.d_model: 16 -> 24"]),
        ({"model__n_layers": 3, "model__position": "alibi"}, ["model.n_layers: 2 -> 3", "model.position"]),
        ({"training__optimizer": "adamw"}, ["training.optimizer: muon -> adamw"]),
        ({"data__tokenizer": "byte"}, ["data.tokenizer: char -> byte"]),
        ({"seed": 3}, ["seed: 1337 -> 3"]),
    ],
)
def test_a_run_does_not_go_on_as_another_one(stopped, settings, keys):
    before = stopped.weights(), stopped.metrics(), (stopped.run() / "config.yaml").read_bytes()
    message = stopped.train("--resume", **settings).refused()
    for key in keys:
        assert key in message
    assert (stopped.weights(), stopped.metrics(), (stopped.run() / "config.yaml").read_bytes()) == before
    assert stopped.run_names() == ["tiny"]


def test_a_changed_schedule_is_applied_and_listed(stopped):
    result = stopped.train(
        "--resume", training__learning_rate=1e-3, training__schedule="constant", training__max_steps=12
    )
    assert result.code == 0
    assert "changed: training.max_steps: 10 -> 12" in result.err
    assert "changed: training.learning_rate: 0.004 -> 0.001" in result.err
    assert "changed: training.schedule: linear -> constant" in result.err
    assert stopped.metrics()[-2]["step"] == 12
    assert stopped.metrics()[-2]["optimizer/learning_rate"] == pytest.approx(1e-3)
    assert load_config(stopped.run() / "config.yaml").training.max_steps == 12


def test_a_run_goes_on_after_its_text_was_deleted_or_changed(stopped):
    (stopped.folder / "tiny.txt").unlink()
    assert stopped.train("--resume", training__save_every=1, training__max_steps=8).code == 0
    stopped.write("tiny.txt", "something else")
    assert stopped.train("--resume").code == 0


def test_a_run_whose_text_is_gone_for_good_says_so(stopped):
    stopped.write("tiny.txt", "something else, and long enough for it. " * 9)
    stopped.environment["ATTN_CACHE_DIR"] = str(stopped.folder / "another cache")
    assert "no longer the text that this run was trained on" in stopped.train("--resume").refused()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny", "no run of that name to resume"),
        ("other", "no run of that name to resume"),
        ("../tiny", "must be a plain name"),
        ("", "must be a plain name"),
    ],
)
def test_resume_without_a_run_is_refused(work, name, message):
    assert message in work.train("--resume", f"--name={name}").refused()
    assert work.run_names() == []


def test_a_named_run_is_resumed_itself_though_a_numbered_one_is_newer(work):
    work.train(training__max_steps=5)
    work.train(training__max_steps=5)
    assert "training tiny-2\n" in work.train("--resume").err
    assert "training tiny\n" in work.train("--resume", "--name", "tiny").err


def test_a_run_that_another_process_trains_is_refused(work):
    work.train(training__max_steps=5)
    hold = "import sys; from filelock import FileLock\nwith FileLock(sys.argv[1]): print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(work.run() / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        refusal = work.train("--resume").refused()
        other.kill()  # the lock dies with its process
    assert "is being trained by another process" in refusal
    assert work.train("--resume").code == 0


def test_a_broken_checkpoint_is_kept_aside_and_an_earlier_one_resumed(work):
    work.train(training__keep_checkpoints=3)
    newest = max((work.run() / "checkpoints").glob("step_*"))
    (newest / "model.safetensors").write_bytes(b"cut short")
    said = work.train("--resume").err
    assert f"it is kept as {newest.name}.broken" in said
    assert (newest.parent / f"{newest.name}.broken" / "model.safetensors").exists()
    assert newest.exists()


def test_a_run_that_is_made_longer_still_draws_ten_maps_at_most(work):
    settings = {"training__eval_every": 5, "training__keep_checkpoints": 2, "inspection__images": 10}
    work.train(training__max_steps=13, **settings)
    drawn = [step for step in work.board_steps()["attention/layer_0"] if step <= 10]
    shutil.rmtree(work.run() / "checkpoints" / "step_00000013")
    assert "resuming at step 10" in work.train("--resume", training__max_steps=40, **settings).err
    steps = work.board_steps()["attention/layer_0"]
    assert steps[: len(drawn)] == drawn
    assert len(steps) == 10
    assert steps[-1] == 40


def test_a_pointer_that_is_garbage_does_not_stop_a_resume(work):
    work.train(training__max_steps=5)
    (work.run() / "checkpoints" / "best.json").write_text("{", encoding="utf-8")
    assert work.train("--resume").code == 0
    assert json.loads((work.run() / "checkpoints" / "best.json").read_text(encoding="utf-8"))["step"] > 0


def test_a_broken_newest_checkpoint_is_named_and_the_one_before_is_used(work):
    work.train(training__keep_checkpoints=5)
    weights = work.run() / "checkpoints" / "step_00000010" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = work.train("--resume", training__keep_checkpoints=5)
    assert result.code == 0
    assert "step_00000010/model.safetensors: damaged" in result.err
    assert "resuming at step 5" in result.err
    assert work.attn("evaluate").code == 0


# Being interrupted


def test_the_second_signal_stops_at_once():
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("where", ["cli.train.gather", "cli.train.Transformer", "cli.train.Trainer"])
def test_an_interrupt_before_the_first_step_leaves_nothing(work, monkeypatch, where):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    result = work.train()
    assert result.code == 130
    assert "Traceback" not in result.err
    assert work.run_names() == []
