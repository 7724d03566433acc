import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import text_files
from data.errors import DataError
from data.text_files import Piece, read_file

Write = Callable[[str, str | bytes], Path]


def text_of(path: Path) -> str:
    return "".join(piece.text for piece in read_file(path))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfabc", "abc"),
        (b"a\xef\xbb\xbfb", "a\ufeffb"),
        (b"a\r\nb\rc\n\r\n\rd\r", "a\nb\nc\n\n\nd\n"),
        (b"a\0b\x01\x1b\x7f\t\x0c", "a\0b\x01\x1b\x7f\t\x0c"),
        ("é\u2028🙂\x85".encode(), "é\u2028🙂\x85"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 3, 4096])
def test_only_the_mark_at_the_start_and_the_line_ends_change(
    write: Write, content: bytes, text: str, chunk: int
) -> None:
    path = write("a.txt", content)

    with patch.object(text_files, "CHUNK_BYTES", chunk):
        assert text_of(path) == text


@given(st.text(st.sampled_from("aé語🙂\r\n\0 ")), st.integers(1, 7))
def test_the_size_of_chunks_never_changes_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.txt"
    path.write_bytes(text.encode("utf-8"))

    with patch.object(text_files, "CHUNK_BYTES", chunk):
        pieces = list(read_file(path))

    assert "".join(piece.text for piece in pieces) == path.read_text(encoding="utf-8")  # universal newlines
    assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True] * bool(text)


@pytest.mark.parametrize("chunk", [1, 2, 5, 4096])
@pytest.mark.parametrize(
    ("content", "byte", "offset"),
    [
        (b"abc\xff", "0xff", 3),
        (b"caf\xe9 noir", "0xe9", 3),
        ("日本".encode() + b"\x80", "0x80", 6),
        (b"ab" + "語".encode()[:2], "0xe8", 2),
        (b"\xed\xa0\x80", "0xed", 0),
        (b"0123456789\xc0\xaf", "0xc0", 10),
    ],
)
def test_a_bad_byte_is_named_with_its_offset(write: Write, content: bytes, byte: str, offset: int, chunk: int) -> None:
    path = write("bad.txt", content)

    with patch.object(text_files, "CHUNK_BYTES", chunk), pytest.raises(DataError, match="UTF-8") as caught:
        text_of(path)

    assert f"{path}: byte {byte} at offset {offset} " in str(caught.value)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("text".encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"\x1f\x8b\x08\0\0", "binary"),
        ("naïve".encode("latin-1"), "save the file as UTF-8"),
    ],
)
def test_the_error_says_what_the_file_looks_like(write: Write, content: bytes, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        text_of(write("a.txt", content))


def test_the_bad_byte_of_json_lines_is_counted_from_the_start_of_the_file(write: Write) -> None:
    path = write("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n')

    with pytest.raises(DataError, match="byte 0xff at offset 24 "):
        text_of(path)


def test_every_line_of_json_is_a_document(write: Write) -> None:
    lines = [{"text": "one\r\ntwo"}, {"id": 3, "text": ""}, {"text": "é 🙂 \u2028"}]
    path = write("a.jsonl", "\ufeff" + "\r\n\n".join(map(json.dumps, lines)) + "\n\n")

    assert list(read_file(path)) == [Piece("one\ntwo", True), Piece("é 🙂 \u2028", True)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("{'text': 1}", "not JSON at column 2"),
        ('{"text": "a"', "not JSON at column"),
        ('["a"]', "not a list"),
        ("3", "not a number"),
        ("null", "not null"),
        ('{"txt": "a", "id": 1}', "only: txt, id"),
        ("{}", "only: nothing"),
        ('{"text": 3}', "must be a string, not a number"),
        ('{"text": null}', "must be a string, not null"),
        ('{"text": true}', "must be a string, not a boolean"),
        ('{"text": "ab\\ud83d"}', r"half a character, \\ud83d, at its position 2"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"text": ' + "1" * 5000 + "}", "cannot be read as JSON"),
    ],
)
def test_a_bad_line_is_named_with_its_number(write: Write, line: str, rule: str) -> None:
    path = write("a.jsonl", '{"text": "fine"}\n\n' + line + "\n")

    with pytest.raises(DataError, match=rule) as caught:
        text_of(path)

    assert str(caught.value).startswith(f"{path}:3: ")


def test_text_is_utf_8_in_any_locale(write: Write) -> None:
    path = write("a.txt", "é 語 🙂")
    program = f"from data.text_files import *; print(ascii([p.text for p in read_file(Path({str(path)!r}))]))"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    root = Path(__file__).parents[2]

    answer = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | locale, cwd=root, capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == ascii(["é 語 🙂"])
