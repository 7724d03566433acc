import pytest
from pydantic import ValidationError

from data.config import DataConfig


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"source": "python-docs", "vocab_size": 257},
        {"source": ["a.txt", "b.txt"], "validation": "c.txt", "tokenizer": "char"},
        {"source": "./copy", "tokenizer": "byte", "validation_fraction": 0.5},
        {"source": "copy", "vocab_size": 2},
        {"source": "induction", "vocab_size": 64},
        {"source": "addition"},
        {"source": "python-docs", "validation": "tinyshakespeare", "tokenizer": "bpe", "vocab_size": 100_000},
    ],
)
def test_keys_that_have_an_effect_are_accepted(keys: dict[str, object]) -> None:
    DataConfig(**keys)


@pytest.mark.parametrize(
    ("keys", "key", "rule"),
    [
        ({"source": ""}, "source", "at least 1"),
        ({"source": []}, "source", "at least 1"),
        ({"source": ["a.txt", ""]}, "source", "empty"),
        ({"source": ["a.txt", "sort"]}, "source", "sort is a task"),
        ({"source": 3}, "source", "valid string"),
        ({"source": "copy", "validation": "a.txt"}, "validation", "no effect with source: copy"),
        ({"validation": "induction"}, "validation", "is a task"),
        ({"validation": ["a.txt", "copy"]}, "validation", "is a task"),
        ({"validation": "a.txt", "validation_fraction": 0.1}, "validation_fraction", "no effect with validation"),
        ({"source": "sort", "validation_fraction": 0.1}, "validation_fraction", "no effect with source: sort"),
        ({"validation_fraction": 0.0}, "validation_fraction", "greater than 0"),
        ({"validation_fraction": 1.0}, "validation_fraction", "less than 1"),
        ({"validation_fraction": float("nan")}, "validation_fraction", "finite"),
        ({"source": "brackets", "tokenizer": "char"}, "tokenizer", "no effect with source: brackets"),
        ({"tokenizer": "word"}, "tokenizer", "'char', 'byte' or 'bpe'"),
        ({"tokenizer": "char", "vocab_size": 300}, "vocab_size", "no effect with tokenizer: char"),
        ({"tokenizer": "byte", "vocab_size": 257}, "vocab_size", "no effect with tokenizer: byte"),
        ({"source": "addition", "vocab_size": 10}, "vocab_size", "no effect with source: addition"),
        ({"source": "brackets", "vocab_size": 10}, "vocab_size", "no effect with source: brackets"),
        ({"vocab_size": 256}, "vocab_size", "at least 257"),
        ({"source": "induction", "vocab_size": 65}, "vocab_size", "at most 64"),
        ({"source": "induction", "vocab_size": 1}, "vocab_size", "greater than or equal to 2"),
    ],
)
def test_a_key_that_is_wrong_or_does_nothing_is_an_error(keys: dict[str, object], key: str, rule: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DataConfig(**keys)

    errors = caught.value.errors()
    assert {error["loc"][0] for error in errors} == {key}
    assert any(rule in error["msg"] for error in errors)


def test_a_source_names_a_task_unless_it_is_a_path() -> None:
    assert DataConfig(source="copy").task == "copy"
    assert DataConfig(source="./copy").task is None
    assert DataConfig(source=["a.txt"]).task is None


def test_what_is_left_out_has_a_default() -> None:
    config = DataConfig()

    assert (config.tokenizer_kind, config.bpe_vocabulary, config.held_out_fraction) == ("bpe", 1024, 0.1)
    assert DataConfig(source="sort").task_symbols == 64
