"""A file -> its text, in pieces of bounded size. Text is UTF-8 whatever the locale.

A byte-order mark is dropped; CRLF and lone CR become LF. Every other character is kept, NUL included.
A `.jsonl` file has one document a line, in the field `text`; any other file is one document.
"""

import codecs
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data.errors import DataError

CHUNK_BYTES = 2**20
"""Bytes read at once."""


class Piece(NamedTuple):
    """Part of a document, in order."""

    text: str
    ends_document: bool


def read_file(path: Path) -> Iterator[Piece]:
    """The documents of a file; empty ones are left out. Raises DataError with the place of what cannot be read."""
    try:
        if path.suffix.lower() == ".jsonl":
            yield from _read_json_lines(path)
        else:
            yield from _mark_last(text for text in _read_text(path) if text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _mark_last(texts: Iterator[str]) -> Iterator[Piece]:
    """Texts of one document as pieces, of which the last ends it."""
    previous = next(texts, None)
    if previous is None:
        return
    for text in texts:
        yield Piece(previous, False)
        previous = text
    yield Piece(previous, True)


def _read_text(path: Path) -> Iterator[str]:
    utf8 = codecs.getincrementaldecoder("utf-8")()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    offset = 0  # of the first byte that is not decoded yet
    with path.open("rb") as file:
        while True:
            chunk = file.read(CHUNK_BYTES)
            pending = len(utf8.getstate()[0])
            try:
                text = utf8.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise DataError(_bad_byte(path, error, offset)) from None
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += pending + len(chunk) - len(utf8.getstate()[0])
            yield newlines.decode(text, final=not chunk)
            if not chunk:
                return


def _bad_byte(path: Path, error: UnicodeDecodeError, offset: int) -> str:
    data = error.object
    if offset == 0 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        advice = "it looks like UTF-16: save it as UTF-8"
    elif b"\0" in data:
        advice = "it looks like a binary file, not text"
    else:
        advice = "save the file as UTF-8"
    return f"{path}: byte 0x{data[error.start]:02x} at offset {offset + error.start} is not UTF-8; {advice}"


def _read_json_lines(path: Path) -> Iterator[Piece]:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(_bad_byte(path, error, offset)) from None
            if number == 1:
                text = text.removeprefix("\ufeff")
            if text.strip():
                document = _text_field(text, f"{path}:{number}")
                yield from _pieces_of(document.replace("\r\n", "\n").replace("\r", "\n"))
            offset += len(line)


def _pieces_of(document: str) -> Iterator[Piece]:
    starts = range(0, len(document), CHUNK_BYTES)
    return _mark_last(document[start : start + CHUNK_BYTES] for start in starts)


def _text_field(line: str, place: str) -> str:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise DataError(f"{place}: cannot be read as JSON: {error}") from None
    if not isinstance(record, dict):
        raise DataError(f'{place}: must be an object such as {{"text": "…"}}, not {_json_type(record)}')
    if "text" not in record:
        raise DataError(f"{place}: has no field `text`, only: {', '.join(record) or 'nothing'}")
    text = record["text"]
    if not isinstance(text, str):
        raise DataError(f"{place}: the field `text` must be a string, not {_json_type(text)}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: the field `text` holds half a character, \\u{ord(text[error.start]):04x}, "
            f"at its position {error.start}"
        ) from None
    return text


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
