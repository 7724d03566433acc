"""A configuration file: what is wrong is told with its place, key, value, rule and the nearest key, all at once."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.config import Config
from cli.config_file import MAX_BYTES, differences, load_config, to_yaml
from cli.config_reference import keys, section_models
from cli.errors import ConfigError
from cli.yaml_source import dump
from data.config import TASKS

DIGITS = "; write it in decimal digits, without separators or units"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def load(text: str | bytes) -> Config:
    Path("my.yaml").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return load_config(Path("my.yaml"))


def refusal(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as refused:
        load(text)
    return str(refused.value)


def test_a_small_file_keeps_every_other_default():
    config = load("model:\n  d_model: 96\n  n_heads: 3\ntraining: {learning_rate: 1e-3}\n")
    assert (config.model.d_model, config.model.n_heads, config.training.learning_rate) == (96, 3, 0.001)
    assert config.logging == Config().logging


def test_a_section_without_keys_is_a_section_of_defaults():
    assert load("model:\ntraining:\n  # max_steps: 5\n") == Config()


def test_a_byte_order_mark_and_crlf_are_accepted():
    assert load(b"\xef\xbb\xbfseed: 7\r\nmodel:\r\n  d_model: 64\r\n").model.d_model == 64


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("training:\n  learnign_rate: 1", "2: training.learnign_rate", "did you mean training.learning_rate?"),
        ("d_model: 5", "1: d_model", "did you mean model.d_model?"),
        ("n_head: 5", "1: n_head", "did you mean model.n_heads?"),
        ("modle: {}", "1: modle", "did you mean model?"),
        ("seed: 1\nlogging:\n  eval_every: 5", "3: logging.eval_every", "did you mean training.eval_every?"),
        ("model:\n  training: {}", "2: model.training", "did you mean training?"),
        ("model:\n  Learning-Rate: 1", "2: model.Learning-Rate", "did you mean training.learning_rate?"),
        ("training.max_steps: 5", "1: training.max_steps", "write max_steps under training:"),
        ("zzz: 5", "1: zzz", "`attn config keys` lists all"),
        ("on: 5", "1: on", "`attn config keys` lists all"),
        ('"": 5', '1: ""', "`attn config keys` lists all"),
        ('"\\e[31m": 5', '1: "\\u001b[31m"', "`attn config keys` lists all"),
        ("z" * 100 + ": 5", f"1: {'z' * 60}…", "`attn config keys` lists all"),
    ],
)
def test_a_mistyped_or_misplaced_key_is_told_with_the_nearest(text, place, hint):
    assert refusal(text) == f"my.yaml:{place}: unknown key; {hint}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2", "my.yaml:2: seed: given twice; first on line 1"),
        ("model:\n  d_ff: 8\n  d_ff: 8", "my.yaml:3: model.d_ff: given twice; first on line 2"),
        ("model: {}\nseed: 5\nmodel: {}", "my.yaml:3: model: given twice; first on line 1"),
        ('seed: 1\n"seed": 2', "my.yaml:2: seed: given twice; first on line 1"),
    ],
)
def test_a_duplicate_key_is_an_error_with_both_lines(text, message):
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("training.max_steps", "1e3", "must be a whole number (at least 0); write 1000"),
        ("training.max_steps", "1000.0", "must be a whole number (at least 0); write 1000"),
        ("training.max_steps", "1.5", "must be a whole number (at least 0)"),
        ("training.max_steps", "true", "must be a whole number (at least 0)"),
        ("training.max_steps", "-1", "must be a whole number (at least 0)"),
        ("training.max_steps", "null", "must be a whole number (at least 0)"),
        ("training.max_steps", "[1]", "must be a whole number (at least 0)"),
        ("training.max_steps", "{a: 1}", "must be a whole number (at least 0)"),
        ("training.max_steps", '"10"', "must be a whole number (at least 0); remove the quotes"),
        *(
            ("training.max_steps", word, f"must be a whole number (at least 0){DIGITS}")
            for word in ("1_000", "1,000", "017", "0x1F", "1:30", "5k")
        ),
        ("training.learning_rate", "fast", "must be a number (above 0, at most 10)"),
        ("training.learning_rate", "false", "must be a number (above 0, at most 10)"),
        ("training.learning_rate", "0", "must be a number (above 0, at most 10)"),
        ("training.learning_rate", "11", "must be a number (above 0, at most 10)"),
        ("training.learning_rate", ".inf", "must be a number (above 0, at most 10); infinity and NaN are none"),
        ("training.weight_decay", ".nan", "must be a number (at least 0); infinity and NaN are none"),
        ("training.weight_decay", "1e999", "must be a number (at least 0); infinity and NaN are none"),
        ("training.weight_decay", "1" + "0" * 50, None),
        ("model.dropout", "1", "must be a number (at least 0, below 1)"),
        ("model.window", "0", "must be a whole number (at least 1) or null"),
        ("model.position", "rotery", "must be sinusoidal, learned, rotary, alibi or none"),
        ("model.position", "null", "must be sinusoidal, learned, rotary, alibi or none"),
        ("model.bias", "yes", "must be true or false; write true"),
        ("model.bias", "Off", "must be true or false; write false"),
        ("model.bias", "1", "must be true or false"),
        ("training.compile", "maybe", "must be auto, true or false"),
        ("training.compile", "3", "must be auto, true or false"),
        ("seed", "9223372036854775808", "must be a whole number (at least 0, below 2^63)"),
        ("device", "gpu", "must be auto, cpu, cuda or mps"),
        ("logging.sample_prompt", "12", "must be text; put it in quotes"),
        ("logging.sample_prompt", "true", "must be text; put it in quotes"),
        ("logging.sample_prompt", "2020-01-01", None),
        ("logging.sample_prompt", "yes", None),
        ("data.source", "[1, a]", "must be text or a list of texts (not empty)"),
        ("data.source", '""', "must be text or a list of texts (not empty)"),
        ("data.source", "[]", "must be text or a list of texts (not empty)"),
        ("inspection.probe_text", '""', "must be text (not empty) or null"),
    ],
)
def test_a_wrong_value_is_told_with_the_rule(key, value, rule):
    section, _, name = key.rpartition(".")
    text = f"{section}:\n  {name}: {value}\n" if section else f"\n{name}: {value}\n"
    if rule is None:
        load(text)
    else:
        assert refusal(text) == f"my.yaml:2: {key} = {value}: {rule}"


@pytest.mark.parametrize("value", ["5", "[]", "text", "[{a: 1}]", "false"])
def test_a_section_that_is_no_section_is_told(value):
    assert refusal(f"seed: 1\nmodel: {value}") == (
        f"my.yaml:2: model = {value}: must be a section: its keys on lines of their own, indented"
    )


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("model:\n  n_heads: 5", "2: model.n_heads = 5", "must divide d_model: 128 / 5 is not a whole number"),
        ("model:\n  n_kv_heads: 3", "2: model.n_kv_heads = 3", "must divide n_heads: 4 / 3 is not a whole number"),
        ("model:\n  d_model: 12\n  position: rotary", "3: model.position = rotary", "rotary turns pairs"),
        ("training: {max_steps: 9, warmup_steps: 9}", "1: training.warmup_steps = 9", "must be below max_steps, 9"),
        ("training:\n  warmup_steps: 90\n  max_steps: 1", "2: training.warmup_steps = 90", "must be below max_steps"),
        ("training:\n  gradient_accumulation: 5", "2: training.gradient_accumulation = 5", "must divide batch_size"),
        ("training:\n  min_learning_rate: 1", "2: training.min_learning_rate = 1", "must not exceed learning_rate"),
    ],
)
def test_keys_that_contradict_each_other_are_told(text, place, rule):
    assert refusal(text).startswith(f"my.yaml:{place}: {rule}")


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("seed: 1\nmodel:\n  n_layers: 2\n  d_model: 130", "4: model.n_heads = 4", "must divide d_model"),
        ("seed: 1\nmodel:\n  d_model: 6\n  n_heads: 2", "3: model.position = rotary", "rotary turns pairs"),
    ],
)
def test_a_default_that_a_given_key_breaks_is_told_at_that_key(text, place, rule):
    assert refusal(text).startswith(f"my.yaml:{place} (the default): {rule}")


@pytest.mark.parametrize(
    "text", ["training: {max_steps: 0}", "training: {max_steps: 1}", "model: {position: alibi, n_heads: 1}"]
)
def test_the_smallest_runs_are_accepted(text):
    load(text)


def test_all_errors_of_a_file_are_told_at_once_by_line():
    text = "model:\n  n_heads: 5\ntraining:\n  learnign_rate: 1\n  max_steps: 5\n  max_steps: 5\nseed: -1\nlogging: 3\n"
    lines = refusal(text).splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["my.yaml:2", "model.n_heads = 5"],
        ["my.yaml:4", "training.learnign_rate"],
        ["my.yaml:6", "training.max_steps"],
        ["my.yaml:7", "seed = -1"],
        ["my.yaml:8", "logging = 3"],
    ]


def test_a_flood_of_errors_is_cut_and_counted():
    lines = refusal("".join(f"x{i}: 1\n" for i in range(50))).splitlines()
    assert lines[0].startswith("my.yaml:1: x0:")
    assert lines[20:] == ["... and 30 more"]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null\n", "\ufeff"])
def test_an_empty_file_is_told(text):
    assert refusal(text) == "my.yaml: is empty; write at least one key, such as seed: 1337"


@pytest.mark.parametrize("text", ["- model", "[]", "5", "model", '"model: 5"'])
def test_a_file_that_is_no_mapping_is_told(text):
    assert refusal(text) == "my.yaml: must be lines of `key: value`, not a list or a single value"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed: 1\nmodel:\n  position: \xe9", "my.yaml:3: not UTF-8 (byte 0xe9 at offset 27)"),
        ("seed: 1".encode("utf-16"), "my.yaml:1: not UTF-8 (byte 0xff at offset 0)"),
        (b"seed: 1\n\tmodel: 1", "my.yaml:2: not valid YAML at column 1: a tab"),
        (b"seed: &a 1", "my.yaml:1: anchors"),
        (b"a: 1\n" * MAX_BYTES, "my.yaml: larger than 100,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_as_yaml_is_told(content, message):
    assert refusal(content).startswith(message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("quickstart", "quickstart: no such file; did you mean configs/quickstart.yaml?"),
        ("quickstart.yaml", "quickstart.yaml: no such file; did you mean configs/quickstart.yaml?"),
        ("configs/quikstart.yaml", "configs/quikstart.yaml: no such file; did you mean configs/quickstart.yaml?"),
        ("nowhere/quickstart.yml", "nowhere/quickstart.yml: no such file; did you mean configs/quickstart.yaml?"),
        ("deepp.yml", "deepp.yml: no such file; did you mean deep.yml?"),
        ("zzz.yaml", "zzz.yaml: no such file"),
        ("configs", "configs: is a folder; name a YAML file in it"),
        ("deep.yml/x", "deep.yml/x: cannot be read: Not a directory"),
        ("x" * 500, f"{'x' * 500}: cannot be read: File name too long"),
    ],
)
def test_a_file_that_is_not_there_is_told_with_the_nearest(path, message):
    Path("configs").mkdir()
    Path("configs/quickstart.yaml").touch()
    Path("deep.yml").touch()
    with pytest.raises(ConfigError) as refused:
        load_config(Path(path))
    assert str(refused.value) == message


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SOURCES = st.text(min_size=1) | st.lists(st.text(min_size=1), min_size=1, max_size=3)
CONFIGS = st.builds(
    lambda seed, rate, compiled, source, prompt, probe: Config.model_validate(
        {
            "seed": seed,
            "data": {"source": source},
            "training": {"learning_rate": rate, "compile": compiled},
            "logging": {"sample_prompt": prompt},
            "inspection": {"probe_text": probe},
        }
    ),
    st.integers(0, 2**63 - 1),
    st.floats(0, 10, exclude_min=True),
    st.booleans() | st.just("auto"),
    SOURCES.filter(lambda source: isinstance(source, str) or not set(TASKS) & set(source)),
    TEXTS,
    st.none() | TEXTS.filter(bool),
)


@given(CONFIGS)
@settings(deadline=None)
def test_a_resolved_configuration_loads_back_equal(folder, config):
    text = to_yaml(config, ["attn 0.1.0", "torch 2.11"])
    (folder / "config.yaml").write_text(text, encoding="utf-8", newline="")
    assert load_config(folder / "config.yaml") == config
    assert yaml.safe_load(text) == config.model_dump()


def test_a_resolved_configuration_has_every_key_under_its_header():
    text = to_yaml(Config(), ["written by attn"])
    assert text.startswith("# written by attn\nseed: 1337\n")
    given_keys = {name for name, _, _ in differences({}, yaml.safe_load(text))}
    required = {info.key for info in keys() if info.default is not None}
    assert required <= given_keys


@pytest.mark.parametrize("line", ["a\nseed: 5", "a\x00b", "a\u2028seed: 5", "é: #"])
def test_a_header_is_a_comment_whatever_it_says(line):
    assert load(to_yaml(Config(), [line])) == Config()


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(deadline=None)
def test_arbitrary_bytes_are_a_configuration_or_a_config_error(folder, content):
    (folder / "any.yaml").write_bytes(content)
    with contextlib.suppress(ConfigError):
        load_config(folder / "any.yaml")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["auto", "1_000", "yes"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from([info.name for info in keys()]) | st.text(max_size=5)
SECTIONS = st.sampled_from([*section_models(), "seed", "modle"])


@given(st.dictionaries(SECTIONS, st.dictionaries(NAMES, ANYTHING, max_size=5) | ANYTHING, min_size=1))
@settings(deadline=None)
def test_any_values_are_a_configuration_or_a_line_a_key(folder, values):
    (folder / "values.yaml").write_text(dump(values), encoding="utf-8", newline="")
    try:
        load_config(folder / "values.yaml")
    except ConfigError as refused:
        lines = str(refused).splitlines()
        is_placed = [line.startswith((f"{folder}/values.yaml:", "... and ")) for line in lines]
        assert all(is_placed), lines


def test_differences_are_dotted_keys_with_both_values():
    old = Config.model_validate({"model": {"d_model": 96, "n_heads": 3}, "seed": 5})
    new = Config.model_validate({"model": {"d_model": 96, "n_heads": 6}, "training": {"grad_clip": None}, "seed": 7})
    assert differences(old.model_dump(), new.model_dump()) == [
        ("seed", 5, 7),
        ("model.n_heads", 3, 6),
        ("training.grad_clip", 1.0, None),
    ]
    assert differences(new.model_dump(), new.model_dump()) == []


def test_a_key_that_one_side_lacks_is_a_difference():
    assert differences({"model": {"a": 1}}, {"model": {"b": 2}}) == [("model.b", None, 2), ("model.a", 1, None)]


@pytest.mark.parametrize("module", ["cli.config", "cli.config_file", "cli.config_reference"])
def test_reading_a_configuration_imports_no_torch(module):
    code = f"import {module}, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    repository = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
