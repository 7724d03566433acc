"""`--set key=value`: YAML for keys that hold numbers and choices, the text itself for keys that hold text."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.config import Config
from cli.config_file import load_config
from cli.errors import ConfigError


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("overrides") / "my.yaml"
    path.write_text("seed: 3\ntraining:\n  max_steps: 50\nlogging:\n", encoding="utf-8")
    return path


def value_of(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(file, overrides)
    return str(refused.value)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("seed=7", 7),
        (" seed = 7 ", 7),
        ("training.learning_rate=1e-3", 0.001),
        ("training.compile=false", False),
        ("training.compile=auto", "auto"),
        ("training.grad_clip=null", None),
        ("model.window=", None),
        ("model.position='alibi'", "alibi"),
        ("device=cpu  # a note", "cpu"),
        ("inspection.images=0", 0),
        ("data.source=[a.txt, 'b c.txt']", ["a.txt", "b c.txt"]),
        ("data.source=a.txt", "a.txt"),
        ("data.source=*.txt", "*.txt"),
        ("data.source=[ab]*.txt", "[ab]*.txt"),
        ("data.source=- a.txt", "- a.txt"),
        ("inspection.probe_text=null", None),
        ("inspection.probe_text='null'", "null"),
        ("logging.sample_prompt=null", "null"),
    ],
)
def test_an_override_is_yaml_of_the_type_that_its_key_holds(file, override, value):
    config = load_config(file, [override])
    assert value_of(config, override.split("=")[0].strip()) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a: b",
            "-x",
            "=-x",
            "--x",
            "x=y=z",
            "12",
            "1e3",
            "true",
            "~",
            "null",
            "2020-01-01",
            " a ",
            "a # b",
            "#a",
        ),
        *(
            ":",
            ": a",
            "- a",
            "-",
            "'",
            '"',
            "[",
            "[a, b]",
            "{a: b}",
            "{",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a`",
            "| a",
            ">",
        ),
        *(
            "it's",
            "'a' b",
            "'a",
            'a"',
            '"Hi" she said "bye"',
            "a\n\tb\n",
            "a\r\nb",
            "\x00",
            "\u2028\ufeff\x85",
            "é 漢 🙂",
        ),
    ],
)
def test_the_value_of_a_key_that_holds_text_is_taken_literally(file, text):
    assert load_config(file, [f"logging.sample_prompt={text}"]).logging.sample_prompt == text


@pytest.mark.parametrize(
    ("text", "value"), [('"a\\n\\tb"', "a\n\tb"), ("'it''s'", "it's"), ("' a '", " a "), ('"\\u00e9"', "é"), ("''", "")]
)
def test_a_text_in_the_quotes_of_yaml_is_what_they_hold(file, text, value):
    assert load_config(file, [f"logging.sample_prompt={text}"]).logging.sample_prompt == value


def test_defaults_yield_to_the_file_and_the_file_to_overrides(file):
    assert load_config(file).training.max_steps == 50
    config = load_config(file, ["training.max_steps=60", "model.d_model=96", "training.max_steps=70"])
    assert (config.training.max_steps, config.model.d_model, config.seed) == (70, 96, 3)
    assert config.training.batch_size == Config().training.batch_size


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("training.max_steps=x", "must be a whole number (at least 0)"),
        ("training.max_steps=1e3", "must be a whole number (at least 0); write 1000"),
        ("training.max_steps==5", "must be a whole number (at least 0)"),
        ("training.max_steps=[", "must be a whole number (at least 0)"),
        ("training.max_steps=&a 5", "must be a whole number (at least 0)"),
        ("training.max_steps=", "must be a whole number (at least 0)"),
        ("model.bias=on", "must be true or false; write true"),
        ("model.position=a: b", "must be sinusoidal, learned, rotary, alibi or none"),
        ("inspection.probe_text=", "must be text (not empty) or null"),
        ("data.source=[1, b]", "must be text or a list of texts (not empty)"),
        ("model.n_heads=5", "must divide d_model: 128 / 5 is not a whole number"),
        ("training.max_step=5", "unknown key; did you mean training.max_steps?"),
        ("max_steps=5", "unknown key; did you mean training.max_steps?"),
        ("modle.d_model=5", "unknown key; did you mean model.d_model?"),
        ("model.d_model.x=5", "unknown key; `attn config keys` lists all"),
        ("..=5", "unknown key; `attn config keys` lists all"),
        ("model=5", "model is a section; name one of its keys, such as model.d_model=..."),
        ("training.max_steps", "must be key=value, such as training.max_steps=500"),
        ("", "must be key=value, such as training.max_steps=500"),
        ("=5", "must be key=value, such as training.max_steps=500"),
        (" =5", "must be key=value, such as training.max_steps=500"),
    ],
)
def test_a_wrong_override_is_named_with_the_rule(file, override, rule):
    assert refusal(file, override) == f"--set {' '.join(override.split())}: {rule}"


def test_bytes_that_are_not_utf8_are_told(file):
    assert refusal(file, "data.source=caf\udce9.txt") == '--set "data.source=caf\\udce9.txt": is not valid UTF-8'


def test_overrides_that_break_a_default_are_named(file):
    assert refusal(file, "model.d_model=130").startswith(
        "--set model.d_model=130: model.n_heads = 4 (the default): must divide d_model"
    )


def test_an_override_that_breaks_a_given_key_is_told_at_the_key(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("training:\n  warmup_steps: 10\n", encoding="utf-8")
    message = refusal(path, "training.max_steps=5")
    assert message == f"{path}:2: training.warmup_steps = 10: must be below max_steps, 5"


def test_problems_of_the_file_and_of_overrides_are_told_together_in_order(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("model: 5\nseed: x\n", encoding="utf-8")
    lines = refusal(path, "zzz=1", "model.d_model=0", "device=gpu").splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:1", f"{path}:2", "--set zzz=1", "--set device=gpu"]


def test_an_override_mends_a_wrong_value_of_the_file(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("seed: x\n", encoding="utf-8")
    assert load_config(path, ["seed=5"]).seed == 5


@given(st.text(), st.sampled_from(["", "seed=", "model.d_model=", "data.source=", "inspection.probe_text=", "model."]))
@example("\ud800", "data.source=")
@settings(deadline=None)
def test_any_override_is_applied_or_a_config_error(file, text, start):
    with contextlib.suppress(ConfigError):
        load_config(file, [start + text])
