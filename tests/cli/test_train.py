"""`attn train`: what it writes, that looking changes nothing, that no key is inert, and that what is shipped trains."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
import torch

from cli.config_file import load_config
from data.config import TASKS
from transformer.inspection.probe import NAMES
from transformer.inspection.record import Record

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SHAKESPEARE = Path(__file__).parents[2] / "data" / "corpora" / "tinyshakespeare.txt"
SCALARS = {
    "loss/train",
    "loss/validation",
    "optimizer/learning_rate",
    "optimizer/gradient_norm",
    "speed/tokens_per_second",
}
OF_HEADS = {
    "attention/best_induction_head",
    "attention/best_previous_token_head",
    "attention/copy_gap",
    "attention/in_context",
    "attention/sink_rate",
    "speed/probe_seconds",
    *(f"per_layer/{what}_{layer}" for what in ("entropy", "max_logit") for layer in (0, 1)),
}


# What a run leaves


def test_a_run_folder_is_complete_and_stdout_stays_empty(work):
    assert work.train().code == 0
    files = {str(path.relative_to(work.run())) for path in work.run().rglob("*") if path.is_file()}
    (events,) = (name for name in files if name.startswith("tensorboard/"))
    checkpoint = "checkpoints/step_00000010/"
    assert files - {events} == {
        "config.yaml",
        "tokenizer.json",
        "validation.npy",
        "metrics.jsonl",
        "samples.md",
        "inspection/probe.json",
        "inspection/scores.jsonl",
        "inspection/maps/step_00000000.bin",
        "inspection/maps/step_00000010.bin",
        "checkpoints/best.json",
        "checkpoints/last.json",
        f"{checkpoint}model.safetensors",
        f"{checkpoint}training.safetensors",
        f"{checkpoint}checkpoint.json",
        ".lock",
    }


def test_the_configuration_of_a_run_loads_back_equal(work):
    work.train(seed=7, logging__sample_prompt="a: fox", data__tokenizer="byte")
    overrides = ["seed=7", "logging.sample_prompt=a: fox", "data.tokenizer=byte"]
    assert load_config(work.run() / "config.yaml") == load_config(work.folder / "tiny.yaml", overrides)


def test_an_existing_run_is_kept_and_the_new_one_gets_a_number(work):
    work.train(training__max_steps=1)
    before = work.weights()
    for number in (2, 3):
        said = work.train(training__max_steps=1, seed=number).err
        assert f"runs/tiny exists and is kept; this run is runs/tiny-{number}" in said
    assert work.run_names() == ["tiny", "tiny-2", "tiny-3"]
    assert work.weights() == before


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../up", "/tmp/x", "a/", "a\nb", "\x1b[31m", "\udcff"]
)
def test_a_name_that_is_no_plain_name_is_refused(work, name):
    assert work.train(f"--name={name}").refused().startswith("error: --name ")
    assert work.run_names() == []


@pytest.mark.parametrize("name", ["my run", "-x", "é漢", "v1.2", "a=b"])
def test_any_plain_name_works(work, name):
    result = work.train(f"--name={name}", training__max_steps=0)
    assert result.code == 0
    assert work.run_names() == [name]
    (told,) = (line for line in result.err.splitlines() if line.startswith("  attn evaluate "))
    assert work.attn(*shlex.split(told)[1:]).code == 0


@pytest.mark.parametrize("text", ["a=b", "-x", "--set", ":x", "it's", 'say "hi"', "  two ", "# no comment", "1e-3"])
def test_a_text_given_with_set_is_taken_literally(work, text):
    result = work.train("--set", f"logging.sample_prompt={text}", training__max_steps=0, data__tokenizer="byte")
    assert result.code == 0
    assert load_config(work.run() / "config.yaml").logging.sample_prompt == text
    assert f"    {text}" in (work.run() / "samples.md").read_text(encoding="utf-8")


def test_lines_are_plain_where_nobody_sees_a_bar(work):
    lines = work.train().err.splitlines()
    assert not any("\r" in line or "\x1b" in line for line in lines)
    steps = [line for line in lines if re.match(r"step \d+/10 · loss ", line)]
    assert len(steps) == 3
    pattern = r"step 10/10 · loss \d\.\d{3} · rate 4\.0e-04 · [\d.]+k? tokens/s · 0:00 left"
    assert re.fullmatch(pattern, steps[-1])


def test_the_last_words_name_the_best_loss_the_folder_and_what_to_try(work):
    said = work.train("--name", "my run").err
    best = json.loads((work.run("my run") / "checkpoints" / "best.json").read_text(encoding="utf-8"))
    assert f"best validation loss  {best['loss']:.4f} at step {best['step']}" in said
    assert "runs/my run" in said
    assert [line.strip() for line in said.splitlines()[-3:]] == [
        "attn generate 'my run'",
        "attn evaluate 'my run'",
        "attn board 'my run'",
    ]


def test_the_first_logged_rate_is_not_zero_and_the_first_step_changes_the_weights(work):
    work.train("--name", "none", training__max_steps=0)
    work.train("--name", "one", training__max_steps=1)
    assert work.metrics("one")[0]["optimizer/learning_rate"] > 0
    assert work.weights("none") != work.weights("one")


def test_validation_losses_are_the_last_points_that_tensorboard_leaves_out(work, monkeypatch):
    monkeypatch.setattr("transformer.inspection.tensorboard.SCALAR_BYTES", 8_000)
    work.train(training__max_steps=40, training__eval_every=1, logging__log_every=1, logging__sample_tokens=0)
    steps = work.board_steps()
    assert len(steps["loss/train"]) < len(steps["loss/validation"])


@pytest.mark.parametrize("max_steps", [0, 1, 2])
def test_a_run_makes_exactly_max_steps_updates_and_ends_with_an_evaluation(work, max_steps):
    assert work.train(training__max_steps=max_steps).code == 0
    assert [line["step"] for line in work.metrics() if "loss/train" in line] == list(range(1, max_steps + 1))
    assert [line["step"] for line in work.metrics() if "loss/validation" in line] == [max_steps]
    assert work.board_steps()["attention/layer_0"] == sorted({0, max_steps})


# TensorBoard


def test_tensorboard_has_the_promised_tags_and_the_values_of_the_metrics(work):
    work.train()
    steps = work.board_steps()
    images = {"attention/layer_0", "attention/layer_1", *(f"scores/{name}" for name in NAMES)}
    others = {"validation/bits_per_byte", "sample", "_hparams_/experiment", "_hparams_/session_start_info"}
    assert set(steps) == SCALARS | OF_HEADS | images | others | {"custom_scalars__config__"}
    for tag in SCALARS:
        assert steps[tag] == [line["step"] for line in work.metrics() if tag in line]


def test_maps_are_drawn_at_ten_steps_at_most_and_at_the_first_and_last(work):
    work.train(inspection__images=10, training__max_steps=40, training__eval_every=40)
    steps = work.board_steps()["attention/layer_1"]
    assert len(steps) == 10
    assert (steps[0], steps[-1]) == (0, 40)
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("images", [1, 2, 10])
def test_a_run_that_stops_early_still_draws_its_last_step(work, images):
    said = work.train(inspection__images=images, training__max_steps=1000, training__target_loss=100).err
    assert "target_loss reached after step 5" in said
    steps = work.board_steps()["attention/layer_0"]
    assert steps[-1] == 5
    assert steps.count(5) == 1
    assert len(steps) <= 10
    assert images == 1 or steps[0] == 0


@pytest.fixture(scope="module")
def base(new_workspace, tmp_path_factory):
    """Runs to compare with: tiny.yaml as it is, with dropout, and with bpe."""
    workspace = new_workspace(tmp_path_factory.mktemp("base"))
    workspace.train()
    workspace.train("--name", "dropout", model__dropout=0.2)
    workspace.train("--name", "bpe", data__tokenizer="bpe")
    return workspace


# What is only looked at changes nothing


@pytest.mark.parametrize(
    "settings",
    [
        {"inspection__images": 0},
        {"inspection__images": 10},
        {"inspection__images": 0, "inspection__maps": 0},
        {"inspection__maps": 20, "inspection__every": 1},
        {"logging__sample_tokens": 0},
        {"logging__sample_tokens": 29, "logging__sample_every": 1},
        {"training__eval_every": 1},
        {"training__eval_every": 7, "training__save_every": 3},
        {"logging__log_every": 1, "inspection__probe_text": "a fox", "training__keep_checkpoints": 9},
    ],
)
def test_looking_more_or_less_often_leaves_the_weights_bit_identical(work, base, settings):
    work.train("--name", "watched", model__dropout=0.2, **settings)
    assert work.weights("watched") == base.weights("dropout")


# No key is inert


def observe(work, name: str) -> dict[str, object]:
    """What can be seen of a run, by the names that the table below uses."""
    folder = work.run(name)
    steps = work.board_steps(name)
    samples = folder / "samples.md"
    return {
        "log": [line["step"] for line in work.metrics(name) if "loss/train" in line],
        "samples": samples.read_text(encoding="utf-8") if samples.exists() else None,
        "drawn": steps.get("attention/layer_0"),
        "recorded": Record(folder / "inspection").map_steps(),
        "scored": [report.step for report in Record(folder / "inspection").reports()],
        "map": work.board_image("attention/layer_0", 0, name) if "attention/layer_0" in steps else None,
        "vocabulary": (folder / "tokenizer.json").read_text(encoding="utf-8"),
        "validation": (folder / "validation.npy").read_bytes(),
        "weights": work.weights(name),
    }


EFFECTS = [
    ("logging.log_every", "1", "log"),
    ("logging.sample_every", "2", "samples"),
    ("logging.sample_prompt", "a fox", "samples"),
    ("logging.sample_tokens", "11", "samples"),
    ("logging.sample_tokens", "0", "samples"),
    ("inspection.images", "0", "drawn"),
    ("inspection.images", "5", "drawn"),
    ("inspection.maps", "0", "recorded"),
    ("inspection.maps", "5", "recorded"),
    ("inspection.maps", "5", "scored"),
    ("inspection.every", "4", "scored"),
    ("inspection.probe_text", "quick", "map"),
    ("inspection.probe_tokens", "9", "map"),
    ("data.source", "other.txt", "weights"),
    ("data.validation", "other.txt", "validation"),
    ("data.validation_fraction", "0.3", "validation"),
    ("data.vocab_size", "271", "vocabulary"),
    ("seed", "3", "weights"),
]


@pytest.mark.parametrize(("key", "value", "what"), EFFECTS)
def test_every_key_of_logging_inspection_and_data_has_an_effect(work, base, key, value, what):
    work.write("other.txt", (work.folder / "tiny.txt").read_bytes()[::2])
    bpe = key == "data.vocab_size"
    work.train(f"--set={key}={value}", data__tokenizer="bpe" if bpe else "char")
    assert observe(work, "tiny")[what] != observe(base, "bpe" if bpe else "tiny")[what]


@pytest.mark.parametrize(("every", "steps"), [("3", [3, 6, 9]), ("null", [5, 10]), ("11", [])])
def test_samples_are_written_at_their_steps(work, every, steps):
    work.train(logging__sample_every=every)
    samples = work.run() / "samples.md"
    text = samples.read_text(encoding="utf-8") if samples.exists() else ""
    assert [int(step) for step in re.findall(r"^## Step (\d+)$", text, re.MULTILINE)] == steps
    assert work.board_steps().get("sample", []) == steps


def test_the_tokenizer_is_the_one_that_is_named(work, base):
    work.train(data__tokenizer="byte")
    assert observe(work, "tiny")["vocabulary"] != observe(base, "tiny")["vocabulary"]


def test_the_table_of_effects_names_every_key():
    config = load_config(CONFIGS[0])
    sections = {"logging": config.logging, "inspection": config.inspection, "data": config.data}
    keys = {f"{name}.{key}" for name, section in sections.items() for key in type(section).model_fields}
    assert {key for key, _, _ in EFFECTS} == (keys | {"seed"}) - {"data.tokenizer"}


def test_the_device_is_the_one_that_is_named(work):
    assert "\n  on     cpu, float32" in work.train(training__max_steps=0).err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_with_a_hint(work, device):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("has mps")
    message = work.train(device=device).refused()
    assert f"device: {device} was asked for" in message
    assert "device: auto" in message
    assert work.run_names() == []


# What is shipped


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_and_reports_its_accuracy(work, task):
    work.write("task.yaml", f"data: {{source: {task}}}\nmodel: {{d_model: 16, n_heads: 2, context_length: 40}}\n")
    result = work.attn(
        "train",
        "task.yaml",
        "--set=training.max_steps=2",
        "--set=training.eval_tokens=400",
        "--set=logging.sample_tokens=9",
    )
    assert result.code == 0, result.err
    assert 0.0 <= work.metrics("task")[-1]["validation/accuracy"] <= 1.0
    assert not (work.run("task") / "validation.npy").exists()


SHRINK = [
    "training.max_steps=2",
    "training.batch_size=2",
    "training.gradient_accumulation=1",
    "training.eval_tokens=100",
    "logging.sample_tokens=5",
    "inspection.images=1",
    "inspection.maps=1",
    "inspection.probe_tokens=7",
    "device=cpu",
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_trains(work, config, tmp_path_factory):
    settings = list(SHRINK)
    if "tinyshakespeare" in config.read_text(encoding="utf-8"):
        if not SHAKESPEARE.exists() and "CI" not in os.environ:
            pytest.skip("needs data/corpora/tinyshakespeare.txt")
        (work.folder / "data" / "corpora").mkdir(parents=True)
        (work.folder / "data" / "corpora" / "tinyshakespeare.txt").write_bytes(SHAKESPEARE.read_bytes())
    if "python-docs" in config.read_text(encoding="utf-8"):
        work.environment["ATTN_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "python-docs")
        settings.append("data.vocab_size=1024")
    if load_config(config).model.d_model > 200:
        settings += ["model.d_model=48", "model.context_length=64"]
    result = work.attn("train", str(config), *(f"--set={setting}" for setting in settings))
    assert result.code == 0, result.err
    assert [line["step"] for line in work.metrics(config.stem) if "loss/train" in line] == [1, 2]
