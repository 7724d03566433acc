"""Every key, told from the models: table, README rows, JSON Schema and starter file agree with them."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from cli.config import Config
from cli.config_file import load_config
from cli.config_reference import (
    STARTER_KEYS,
    find_key,
    json_schema,
    json_schema_text,
    keys,
    keys_markdown,
    keys_table,
    section_models,
    starter,
)
from cli.errors import ConfigError

SCHEMA_FILE = Path(__file__).parents[2] / "configs" / "schema.json"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def dotted_keys(values: dict, prefix: str = "") -> list[str]:
    nested = [
        dotted_keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
        for name, value in values.items()
    ]
    return [key for part in nested for key in part]


def test_every_key_of_the_models_is_known_once_with_its_default():
    values = Config().model_dump()
    assert [info.key for info in keys()] == dotted_keys(values)
    for info in keys():
        assert info.default == (values[info.section][info.name] if info.section else values[info.name])


@pytest.mark.parametrize(
    ("key", "type_", "range_", "accepts"),
    [
        ("seed", "a whole number", "at least 0, below 2^63", "a whole number (at least 0, below 2^63)"),
        ("device", "auto, cpu, cuda or mps", "", "auto, cpu, cuda or mps"),
        ("model.dropout", "a number", "at least 0, below 1", "a number (at least 0, below 1)"),
        ("model.window", "a whole number", "at least 1", "a whole number (at least 1) or null"),
        ("model.bias", "true or false", "", "true or false"),
        ("data.source", "text or a list of texts", "not empty", "text or a list of texts (not empty)"),
        ("data.tokenizer", "char, byte or bpe", "", "char, byte, bpe or null"),
        ("training.compile", "auto, true or false", "", "auto, true or false"),
        ("training.learning_rate", "a number", "above 0, at most 10", "a number (above 0, at most 10)"),
        ("logging.sample_prompt", "text", "", "text"),
    ],
)
def test_types_and_ranges_are_plain_words(key, type_, range_, accepts):
    info = find_key(key)
    assert info is not None
    assert (info.type, info.range, info.accepts) == (type_, range_, accepts)


def test_no_section_or_unknown_name_is_a_key():
    assert find_key("model") is None
    assert find_key("model.d_mode") is None


def test_every_key_has_a_description():
    assert [info.key for info in keys() if not info.description.endswith(".")] == []


def test_the_table_names_every_key_and_fits_a_hundred_columns():
    lines = keys_table().splitlines()
    assert max(map(len, lines)) <= 100
    first_words = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert first_words == [info.key for info in keys()]


def test_the_table_loses_no_word_of_a_description():
    words = " ".join(keys_table().split())
    for info in keys():
        assert " ".join(info.description.split()[:3]) in words
        assert info.description.split()[-1] in words


def test_the_markdown_is_a_table_a_section_with_a_row_a_key():
    rows = [line for line in keys_markdown().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [info.name for info in keys()]
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert keys_markdown().count("|---|---|---|---|") == 1 + len(section_models())


def test_the_schema_file_is_in_step_with_the_models():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == json_schema_text()


def test_the_schema_is_valid_and_describes_every_key():
    schema = json_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    for info in keys():
        model = schema["$defs"][section_models()[info.section].__name__] if info.section else schema
        assert model["properties"][info.name]["description"] == info.description
        assert model["properties"][info.name]["default"] == info.default


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("seed: 5", True),
        ("model:\ntraining:\n  max_steps: 5", True),
        ("training: {compile: true, learning_rate: 0.001, grad_clip: null}", True),
        ("data: {source: [a, b]}", True),
        ("modle: {}", False),
        ("model: {d_mode: 5}", False),
        ("model: {d_model: 0}", False),
        ("model: {dropout: 1.0}", False),
        ("model: {position: x}", False),
        ("model: {d_model: null}", False),
        ("model: 5", False),
        ("seed: true", False),
        ("seed: -1", False),
        ("training: {learning_rate: 0}", False),
        ("data: {source: ''}", False),
        ("data: {source: [1]}", False),
        ("logging: {sample_prompt: 12}", False),
        ("[]", False),
    ],
)
def test_the_schema_accepts_what_loading_accepts(text, is_valid):
    Path("my.yaml").write_text(text, encoding="utf-8")
    assert jsonschema.Draft7Validator(json_schema()).is_valid(yaml.safe_load(text)) == is_valid
    if is_valid:
        load_config(Path("my.yaml"))
    else:
        with pytest.raises(ConfigError):
            load_config(Path("my.yaml"))


def test_the_starter_loads_as_the_defaults_and_sets_the_important_keys():
    Path("my.yaml").write_text(starter(), encoding="utf-8")
    assert load_config(Path("my.yaml")) == Config()
    values = yaml.safe_load(starter())
    assert set(dotted_keys({name: value or {} for name, value in values.items()})) == STARTER_KEYS
    assert jsonschema.Draft7Validator(json_schema()).is_valid(values)


def test_the_starter_begins_with_the_schema_and_fits_a_screen():
    lines = starter("configs/schema.json").splitlines()
    assert lines[0] == "# yaml-language-server: $schema=configs/schema.json"
    assert max(map(len, lines)) <= 100


def test_uncommenting_every_key_of_the_starter_gives_the_defaults_too():
    names = "|".join({info.name for info in keys()})
    text = re.sub(rf"^( *)# ({names}): ", r"\1\2: ", starter(), flags=re.MULTILINE)
    Path("my.yaml").write_text(text, encoding="utf-8")
    assert load_config(Path("my.yaml")) == Config()
    assert dotted_keys(yaml.safe_load(text)) == [info.key for info in keys()]


def test_the_schema_text_is_json():
    assert json.loads(json_schema_text()) == json_schema()
