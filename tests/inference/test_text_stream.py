"""Streamed pieces against the text decoded at once, cut before its first stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data.tokenizer import byte_tokenizer, char_tokenizer, train_bpe
from transformer.inference.text_stream import TextStream

BYTES = byte_tokenizer(end_of_text=True)
CHARACTERS = char_tokenizer("abc�é👍\n")
PAIRS = train_bpe(["aabaab abc abcabc bca 👍👍 é é aaa bbb" * 20], 300)

HARD = ["é", "👍", "👩‍👩‍👧", "日本", "�", "a\u0301", "\r\n", "\x00", "\u2028"]


def streamed(tokenizer: Tokenizer, tokens: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    """Pieces after each token until a stop string comes, and the last one."""
    stream, pieces = TextStream(tokenizer, stop=stop), []
    for token in tokens:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.close()]


def cut(text: str, stop: Sequence[str]) -> str:
    """A text up to where the first stop string begins."""
    return text[: min((text.find(each) for each in stop if each in text), default=len(text))]


def decoded(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return tokenizer.decode(list(tokens), skip_special_tokens=False)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 255), max_size=40))
def test_any_bytes_stream_to_what_python_decodes(tokens: list[int]) -> None:
    assert "".join(streamed(BYTES, tokens)) == bytes(tokens).decode("utf-8", errors="replace")


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.sampled_from(HARD), st.characters(exclude_categories=["Cs"])), max_size=20))
def test_any_text_streams_to_itself_a_whole_character_at_a_time(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = streamed(BYTES, list(text.encode("utf-8")))
    assert "".join(pieces) == text
    given_out = 0
    for n_bytes, piece in enumerate(pieces[:-1], start=1):
        given_out += len(piece)
        known = text.encode("utf-8")[:n_bytes].decode("utf-8", errors="ignore")
        assert len(known) - given_out in (0, 1)  # only a last replacement character waits
        assert given_out == len(known) or known.endswith("�")


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, PAIRS.get_vocab_size() - 1), max_size=30))
def test_any_tokens_of_byte_pairs_stream_to_what_they_decode_to_at_once(tokens: list[int]) -> None:
    assert "".join(streamed(PAIRS, tokens)) == decoded(PAIRS, tokens)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, CHARACTERS.get_vocab_size() - 1), max_size=30))
def test_characters_stream_to_what_they_decode_to_at_once(tokens: list[int]) -> None:
    assert "".join(streamed(CHARACTERS, tokens)) == decoded(CHARACTERS, tokens)


STOPS = st.lists(st.text("abc�", min_size=1, max_size=4), min_size=1, max_size=3)


def safe(text: str, stop: Sequence[str]) -> str:
    """A text up to the first place where a stop string begins, or may begin once more text follows."""
    for start in range(len(text)):
        rest = text[start:]
        if any(rest.startswith(each) or each.startswith(rest) for each in stop):
            return text[:start]
    return text


def check_stopping(tokenizer: Tokenizer, tokens: Sequence[int], stop: Sequence[str]) -> None:
    """Pieces join to the cut text, and after each token exactly what is safe has been given out."""
    pieces = streamed(tokenizer, tokens, stop)
    assert "".join(pieces) == cut(decoded(tokenizer, tokens), stop)
    for n in range(1, len(pieces)):
        text = decoded(tokenizer, tokens[:n])
        certain = text[:-1] if text.endswith("�") else text
        assert "".join(pieces[:n]) == safe(certain, stop)


@settings(deadline=None, max_examples=200)
@given(st.text("abc�", max_size=20), STOPS)
def test_the_text_ends_before_the_first_stop_string_when_tokens_are_characters(text: str, stop: list[str]) -> None:
    check_stopping(CHARACTERS, CHARACTERS.encode(text).ids, stop)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, PAIRS.get_vocab_size() - 1), max_size=12), STOPS)
def test_the_text_ends_before_the_first_stop_string_when_tokens_are_longer(tokens: list[int], stop: list[str]) -> None:
    check_stopping(PAIRS, tokens, stop)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("aaab", ["aab"], ["", "", "a", "", ""]),  # a beginning that is none, with another inside it
        ("abcabb", ["abcabc"], ["", "", "", "", "", "abcabb", ""]),
        ("abab", ["ab"], ["", "", ""]),
        ("cab", ["abc", "ab"], ["c", "", "", ""]),  # one is the beginning of the other
        ("abca", ["abcc", "bc"], ["", "", "", "a", ""]),  # one lies inside what may be the other
        ("bcé", ["é"], ["b", "c", "", ""]),
    ],
)
def test_stop_strings_that_overlap(text: str, stop: list[str], expected: list[str]) -> None:
    pieces = streamed(CHARACTERS, CHARACTERS.encode(text).ids, stop)
    assert pieces == expected
    check_stopping(CHARACTERS, CHARACTERS.encode(text).ids, stop)


def test_a_stop_string_of_several_bytes_is_recognised_when_its_last_byte_comes() -> None:
    stream = TextStream(BYTES, stop=["👍"])
    pieces = [stream.push(byte) for byte in "a👍".encode()]
    assert pieces == ["a", "", "", "", ""]
    assert stream.stopped
    assert stream.push(98) == stream.close() == ""


def test_what_was_held_back_for_a_stop_string_comes_at_the_end() -> None:
    assert streamed(CHARACTERS, CHARACTERS.encode("cab").ids, ["abc"]) == ["c", "", "", "ab"]


def test_special_tokens_are_shown_as_their_names() -> None:
    assert "".join(streamed(BYTES, [97, 256, 98])) == "a<|endoftext|>b"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="a stop string needs at least one character"):
        TextStream(BYTES, stop=["a", ""])
