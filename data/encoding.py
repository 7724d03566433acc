"""Documents -> token ids, streamed: however a text is cut into pieces, its ids are those of the whole text."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from data.errors import DataError
from data.text_files import Piece
from data.tokenizer import CODE_POINTS, Ids, encoder, end_of_text_id, kind_of

BLOCK_CHARACTERS = 2**16
"""What one thread encodes at once."""

BATCH_CHARACTERS = 2**20
"""What all threads encode at once; it bounds the memory, as the library's encodings are large."""

LONGEST_WORD = 4 * 2**20
"""Characters without white space that bpe accepts, about; it must see a word whole."""

# GPT-2's words begin at white space or hold none, so a word never reaches over the place between a character
# that is no white space and one that is. Its white space is Unicode's; Python's has four control characters more.
_WORD_END = re.compile(r"\S(?=[^\S\x1c-\x1f])")
_LAST_WORD_END = re.compile(r".*\S(?=[^\S\x1c-\x1f])", re.DOTALL)


@dataclass(frozen=True)
class Survey:
    """What must be known of a corpus before it is encoded."""

    characters: int
    documents: int
    alphabet: str


def survey(pieces: Iterable[Piece]) -> Survey:
    """Count the characters and documents of a corpus, and collect the characters that occur."""
    characters = documents = 0
    occurs = np.zeros(CODE_POINTS, dtype=np.bool_)
    for piece in pieces:
        occurs[np.frombuffer(piece.text.encode("utf-32-le"), dtype=np.uint32)] = True
        characters += len(piece.text)
        documents += piece.ends_document
    return Survey(characters, documents, "".join(map(chr, np.flatnonzero(occurs))))


def take(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    """The characters from start to stop of a corpus; a document that is cut off at stop does not end."""
    position = 0
    for text, ends_document in pieces:
        begin, end = max(start - position, 0), min(stop - position, len(text))
        if begin < end:
            yield Piece(text[begin:end], ends_document and end == len(text))
        position += len(text)
        if position >= stop:
            return


def whole_words(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same documents, cut only at the ends of words, into blocks where the words allow it."""
    text = ""
    for piece in pieces:
        text += piece.text
        start = 0
        while len(text) - start > BLOCK_CHARACTERS and (end := _block_end(text, start)):
            yield Piece(text[start:end], False)
            start = end
        text = text[start:]
        if piece.ends_document:
            yield Piece(text, True)
            text = ""
        elif len(text) > LONGEST_WORD:
            raise DataError(
                f"bpe cuts text into words, but more than {LONGEST_WORD:,} characters run on without a white space "
                f"between them, from {text[:20]!r}; use tokenizer: char or byte"
            )
    if text:
        yield Piece(text, False)


def encode_pieces(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> Iterator[tuple[Ids, int]]:
    """Ids, (n,), and the number of characters they stand for, part after part."""
    end_id = end_of_text_id(tokenizer)
    end = np.array([] if end_id is None else [end_id], dtype=np.int64)
    for ids, piece in _encode(tokenizer, pieces):
        yield np.concatenate([ids, end]) if piece.ends_document else ids, len(piece.text)


def _encode(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> Iterator[tuple[Ids, Piece]]:
    if kind_of(tokenizer) != "bpe":
        encode = encoder(tokenizer)
        yield from ((encode(piece.text), piece) for piece in pieces)
        return
    for batch in _batches(whole_words(pieces)):
        encodings = tokenizer.encode_batch_fast([piece.text for piece in batch], add_special_tokens=False)
        for encoding, piece in zip(encodings, batch, strict=True):
            yield np.array(encoding.ids, dtype=np.int64), piece


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    characters = 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _block_end(text: str, start: int) -> int | None:
    """The last end of a word within a block, else the first one after it, else None."""
    stop = start + BLOCK_CHARACTERS
    found = _LAST_WORD_END.match(text, start, stop) or _WORD_END.search(text, stop - 1)
    return found.end() if found else None
