import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from data.errors import DataError
from data.tokenizer import (
    END_OF_TEXT,
    byte_tokenizer,
    char_tokenizer,
    decode,
    describe_characters,
    encode,
    encoder,
    end_of_text_id,
    kind_of,
    load_tokenizer,
    token_bytes,
    token_characters,
    token_labels,
    token_units,
    train_bpe,
)

Write = Callable[[str, str | bytes], Path]

SAMPLE = "The cat sat on the mat. The dog's\n\n  hat — it's in the hall — was naïve; 日本語 🙂🙂.\t\0\r\n" * 3
HOSTILE = [
    END_OF_TEXT,
    f"a{END_OF_TEXT}b {END_OF_TEXT}",
    "<|endoftext",
    "<s></s><pad>[UNK]",
    "</script>",
    "\0\x01\x1b\x7f",
    "\r\n\r\r\n",
    " \u2028\u2029\x85\u00a0\ufeff",
    "\u202eright to left\u202c",
    "👩‍👩‍👧e\u0301\u200d",
    "   leading and trailing   ",
    "x" * 10_000,
    "",
]
KINDS = ("char", "byte", "bpe")


def make(kind: str, text: str = SAMPLE, *, end_of_text: bool = False) -> Tokenizer:
    if kind == "char":
        return char_tokenizer(text, end_of_text=end_of_text)
    if kind == "byte":
        return byte_tokenizer(end_of_text=end_of_text)
    return train_bpe([text], 300, end_of_text=end_of_text)


BYTE, BPE = make("byte", end_of_text=True), make("bpe", end_of_text=True)


@given(st.text())
def test_decoding_the_ids_of_any_text_gives_the_text(text: str) -> None:
    for tokenizer in (char_tokenizer(text or "a"), BYTE, BPE):
        ids = encode(tokenizer, text)

        assert decode(tokenizer, ids) == text
        assert ids.tolist() == tokenizer.encode(text).ids


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_is_only_text(kind: str, text: str) -> None:
    tokenizer = make(kind, SAMPLE + text, end_of_text=True)

    ids = encode(tokenizer, text)

    assert decode(tokenizer, ids) == text
    assert ids.tolist() == tokenizer.encode(text).ids
    assert end_of_text_id(tokenizer) not in ids


@given(st.text(st.sampled_from("abé語🙂 \n'"), max_size=60))
def test_bytes_and_characters_of_tokens_add_up_to_those_of_the_text(text: str) -> None:
    for tokenizer in (char_tokenizer("abé語🙂 \n'", end_of_text=True), BYTE, BPE):
        ids = encode(tokenizer, text)

        assert token_bytes(tokenizer)[ids].sum() == len(text.encode("utf-8"))
        assert token_characters(tokenizer)[ids].sum() == len(text)


def test_ids_of_characters_follow_the_code_points() -> None:
    text = "hello\nWORLD é🙂"
    stoi = {character: i for i, character in enumerate(sorted(set(text)))}

    assert encode(char_tokenizer(text), text).tolist() == [stoi[character] for character in text]


def test_the_id_of_a_byte_is_the_byte() -> None:
    text = "".join(map(chr, range(1, 3000)))

    assert encode(byte_tokenizer(), text).tolist() == list(text.encode("utf-8"))
    assert [byte_tokenizer().token_to_id(symbol) for symbol in sorted(pre_tokenizers.ByteLevel.alphabet())]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_text_is_the_last_id_and_stands_for_nothing(kind: str) -> None:
    tokenizer = make(kind, end_of_text=True)
    last = tokenizer.get_vocab_size() - 1

    assert end_of_text_id(tokenizer) == last
    assert token_bytes(tokenizer)[last] == token_characters(tokenizer)[last] == 0
    assert token_bytes(tokenizer)[:last].min() >= 1
    assert token_labels(tokenizer, [last]) == [END_OF_TEXT]
    assert decode(tokenizer, [last]) == END_OF_TEXT
    assert end_of_text_id(make(kind)) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end_of_text", [False, True])
def test_a_saved_tokenizer_gives_the_same_ids_in_the_library(tmp_path: Path, kind: str, end_of_text: bool) -> None:
    tokenizer, path = make(kind, end_of_text=end_of_text), tmp_path / "tokenizer.json"
    tokenizer.save(str(path))

    standard, ours = Tokenizer.from_file(str(path)), load_tokenizer(path)

    assert kind_of(ours) == kind
    assert standard.encode(SAMPLE).ids == encode(ours, SAMPLE).tolist() == encode(tokenizer, SAMPLE).tolist()
    assert standard.decode(standard.encode(SAMPLE).ids) == SAMPLE
    assert ours.get_vocab() == tokenizer.get_vocab()
    if end_of_text and kind != "char":
        assert decode(ours, encode(ours, END_OF_TEXT)) == END_OF_TEXT
        assert end_of_text_id(ours) not in encode(ours, END_OF_TEXT)


@pytest.mark.parametrize("size", [257, 258, 300, 5000])
@pytest.mark.parametrize("end_of_text", [False, True])
def test_bpe_learns_at_most_as_many_tokens_as_asked(size: int, end_of_text: bool) -> None:
    tokenizer = train_bpe([SAMPLE], size, end_of_text=end_of_text)

    assert tokenizer.get_vocab_size() == size or (size == 5000 and 257 < tokenizer.get_vocab_size() < 5000)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("é", ["é (U+00E9)", "line 1, column 1"]),
        ("ab\nba🙂", ["🙂 (U+1F642)", "line 2, column 3"]),
        ("a\0b\n", [r"\x00 (U+0000)", "line 1, column 2"]),
        ("é日é", ["é (U+00E9), 日 (U+65E5)"]),
        ("\n\na\udc80", [r"\udc80 (U+DC80)", "line 3, column 2"]),
        ("CDEFGHIJKLMNOPQ", ["C (U+0043)", "L (U+004C) and 5 more"]),
    ],
)
def test_every_unknown_character_is_named_with_a_remedy(text: str, named: list[str]) -> None:
    with pytest.raises(DataError, match="tokenizer: byte or bpe") as caught:
        encode(char_tokenizer("ab\n"), text)

    assert all(name in str(caught.value) for name in named)


@pytest.mark.parametrize("tokenizer", [BYTE, BPE])
def test_half_a_character_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"\\udc80 \(U\+DC80\) at position 2"):
        encode(tokenizer, "ab\udc80")


def test_labels_show_text_literally_and_parts_of_characters_as_bytes() -> None:
    assert token_labels(BYTE, encode(BYTE, "a é\n<")) == ["a", " ", r"\xc3", r"\xa9", "\n", "<"]
    assert token_labels(char_tokenizer("\\é🙂"), [0, 1, 2]) == ["\\", "é", "🙂"]
    assert "".join(token_labels(BPE, encode(BPE, "The cat's hat\n\n"))) == "The cat's hat\n\n"


def test_labels_take_the_ids_of_an_array() -> None:
    assert token_labels(BYTE, np.array([104, 105], dtype=np.uint16)) == ["h", "i"]


def test_long_lists_of_characters_are_cut() -> None:
    assert describe_characters("ba") == "a (U+0061), b (U+0062)"
    assert describe_characters(map(chr, range(0x4E00, 0x4E00 + 2000))).endswith(" and 1990 more")


def test_one_encoder_serves_many_texts() -> None:
    encode_characters = encoder(char_tokenizer("abc"))

    assert [encode_characters(text).tolist() for text in ("", "cab", "b")] == [[], [2, 0, 1], [1]]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"version": "1.0"}', json.dumps({"model": {"type": "BPE"}}), b"\x80\x02}q"]
)
def test_a_broken_tokenizer_file_is_named(write: Write, content: str | bytes) -> None:
    path = write("tokenizer.json", content)

    with pytest.raises(DataError, match=r"no readable tokenizer\.json") as caught:
        load_tokenizer(path)

    assert str(path) in str(caught.value)


def test_a_missing_tokenizer_file_is_named() -> None:
    with pytest.raises(DataError, match=r"nowhere/tokenizer\.json"):
        load_tokenizer(Path("nowhere/tokenizer.json"))


@pytest.mark.parametrize(
    "model", [models.WordLevel({"word": 0, "a": 1}), models.Unigram([("a", 0.0)], 0, False), models.WordPiece({"a": 0})]
)
def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path, model: models.Model) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer(model).save(str(path))

    with pytest.raises(DataError, match=r"tokenizer\.json: .*neither of single characters nor of byte-level pairs"):
        load_tokenizer(path)


def test_a_byte_level_tokenizer_from_elsewhere_is_bpe() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "Ġ": 2, "ab": 3}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()

    assert kind_of(tokenizer) == "bpe"
    assert token_bytes(tokenizer).tolist() == [1, 1, 1, 2]
    assert encode(tokenizer, "ab a").tolist() == [3, 2, 0]


# Tokens as they are shown


def test_text_and_special_tokens_are_literal_and_bytes_are_hexadecimal() -> None:
    end = end_of_text_id(BYTE)
    assert end is not None
    tokens, groups = token_units(BYTE, [*b"a \n\xff", end])
    assert tokens == [
        {"text": "a", "bytes": None, "special": False},
        {"text": " ", "bytes": None, "special": False},
        {"text": "\n", "bytes": None, "special": False},
        {"text": "\\xff", "bytes": "ff", "special": False},
        {"text": END_OF_TEXT, "bytes": None, "special": True},
    ]
    assert groups == []


@pytest.mark.parametrize("text", ["나는 사과를 좋아해", "👩‍👩‍👧 e\u0301 é", "🙂🙂", "naïve 日本語"])
def test_the_bytes_of_a_character_are_one_group(text: str) -> None:
    _, groups = token_units(BYTE, encode(BYTE, text).tolist())
    starts = np.cumsum([0, *(len(character.encode()) for character in text)]).tolist()
    expected = [
        (start, start + len(character.encode()), character)
        for start, character in zip(starts, text, strict=False)
        if len(character.encode()) > 1
    ]
    assert groups == expected


@given(st.text(alphabet=st.sampled_from("a 나é👩\u200d🙂\0日"), max_size=20))
def test_what_is_shown_of_any_text_is_the_text(text: str) -> None:
    for tokenizer in (BYTE, BPE):
        tokens, groups = token_units(tokenizer, encode(tokenizer, text).tolist())
        shown = {index: token["text"] for index, token in enumerate(tokens)}
        for start, end, characters in groups:
            assert end - start >= 2
            assert tokens[start]["bytes"] is not None
            shown[start] = characters
            for index in range(start + 1, end):
                del shown[index]
        assert "".join(shown[index] for index in sorted(shown)) == text


def test_groups_are_as_short_as_can_be() -> None:
    tokenizer = Tokenizer(models.BPE({"í": 0, "Ĥĺí": 1, "Ĥĺ": 2, "a": 3}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokens, groups = token_units(tokenizer, [3, 0, 1, 2, 0, 2, 3])
    assert [token["bytes"] for token in tokens] == [None, "ed", "8298ed", "8298", "ed", "8298", None]
    assert groups == [(1, 4, "킘킘"), (4, 6, "킘")]


@pytest.mark.parametrize(
    "ids", [[0xED], [0xED, 0x82], [0x82, 0x98], [0xED, 0x41], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0xED, 0x82, 256, 0x98]]
)
def test_bytes_that_never_become_a_character_are_no_group(ids: list[int]) -> None:
    assert token_units(BYTE, ids)[1] == []


def test_a_character_after_broken_bytes_is_a_group() -> None:
    _, groups = token_units(BYTE, [0xED, 0x82, *"é".encode(), 0x80, *"나".encode()])
    assert groups == [(2, 4, "é"), (5, 8, "나")]
