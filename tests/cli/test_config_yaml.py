"""YAML as configuration files are read: no trap, no bomb, and a line for everything."""

import contextlib
import math
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.yaml_source import YamlError, dump, dump_inline, plain_value, read

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5
)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5e1", 5.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("+7", 7),
        ("-0", 0),
        ("1e+2", 100.0),
        ("-.inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_decimal_numbers_true_false_and_null_are_values(word, value):
    assert plain_value(word) == value
    assert type(plain_value(word)) is type(value)


@pytest.mark.parametrize(
    "word",
    [
        *("yes", "no", "on", "off", "y", "017", "0o17", "0x1F", "0b1", "1_000", "1,000", "1:30", "190:20:30"),
        *("2020-01-01", "1e", "e3", ".", "1.2.3", "inf", "nan", "NaN", "١٢", "1 000", "9" * 5000),
    ],
)
def test_every_other_word_is_text(word):
    assert plain_value(word) == word


def test_dates_and_yes_stay_text_in_a_document():
    assert read("day: 2020-01-01\nanswer: yes\n").value == {"day": "2020-01-01", "answer": "yes"}


def test_keys_are_text_whatever_they_look_like():
    assert read("1: a\ntrue: b\non: c\n").value == {"1": "a", "true": "b", "on": "c"}


def test_places_are_the_lines_and_texts_as_written():
    places = read('model:\n  d_model: 1e3\n\n  "n_heads": "5"  # note\n').places
    assert {key: (place.line, place.text) for key, place in places.items()} == {
        ("model",): (1, 'd_model: 1e3\n\n  "n_heads": "5"  # note'),
        ("model", "d_model"): (2, "1e3"),
        ("model", "n_heads"): (4, '"5"'),
    }


def test_a_duplicate_key_is_reported_with_both_lines_at_any_depth():
    source = read("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 2\n")
    assert source.duplicates == [(("b", "c"), 5, 3), (("a",), 6, 1)]


def test_the_same_key_in_two_items_of_a_list_is_no_duplicate():
    assert read("a:\n- b: 1\n- b: 2\n").duplicates == []


@pytest.mark.parametrize(
    "text", ["a: &x 1", "a: *x", "b: 1\na: *.txt", "<<: {a: 1}", "a: !!int 1", "a: !x", "a: !!python/name:os.system"]
)
def test_anchors_aliases_merge_keys_and_tags_are_refused(text):
    with pytest.raises(YamlError, match="not supported") as refused:
        read(text)
    assert refused.value.line == text.count("\n") + 1


@pytest.mark.parametrize("sign", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_quickly(sign):
    start = time.perf_counter()
    with pytest.raises(YamlError, match="nested more than 10 levels"):
        read("a: \n  " + sign * 100_000)
    assert time.perf_counter() - start < 5


def test_an_anchor_bomb_is_refused_quickly():
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(YamlError, match="anchors"):
        read("\n".join(["l0: &l0 lol", *levels]))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\n\tb: 2", 2, "tab"),
        ("a:\t1", 1, "tab"),
        ("a: b: c", 1, "unexpected ': '"),
        ("a: 1\n  b: 2", 2, "indentation"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: 1\nb\nc: 3", 2, "without ': '"),
        ('a: 1\nb: "x\nc: 3\n', 2, "never closed"),
        ("a: [1, 2\nb: 3", 2, "brackets"),
        ("a: %x", 1, "begins with % needs quotes"),
        ("a: @x", 1, "begins with @ needs quotes"),
        ("a: 'it's'", 1, "quotes"),
        ("[a]: b", 1, "a key is a word"),
        ("b: 1\n? {a: b}\n: c", 2, "a key is a word"),
        ("b: 1\na: \x07", 2, r'"\u0007" is not allowed'),
        ('a: "\\UFFFFFFFF"', 1, "impossible number"),
        ('a: "\\U00110000"', 1, "impossible number"),
        ("%YAML 1." + "9" * 5000 + "\n---\na: 1", 1, "impossible number"),
        ('b: 1\na: "\\ud83d"', 2, "half a character"),
        ('"\\ud83d": 1', 1, "half a character"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(text, line, words):
    with pytest.raises(YamlError) as refused:
        read(text)
    assert words in str(refused.value)
    assert refused.value.line == line


@given(VALUES)
@settings(deadline=None)
def test_dumped_values_read_back_equal_here_and_in_plain_yaml(value):
    text = dump({"key": value})
    assert read(text).value == {"key": value}
    assert yaml.safe_load(text) == {"key": value}


@given(SCALARS | st.lists(SCALARS, max_size=3))
@settings(deadline=None)
def test_inline_values_read_back_equal_and_are_one_line(value):
    text = dump_inline(value)
    assert len(text.splitlines()) <= 1
    assert read(f"key: {text}").value == {"key": value}


@given(
    st.text()
    | st.lists(st.sampled_from([*"ab:-[]{}&*!|>'\"%@`#,?\n \t", "\n  ", ": ", "- ", "1e3", "\\u"])).map("".join)
)
@settings(deadline=None)
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(YamlError):
        read(text)
