"""Text <-> token ids. Every tokenizer is a plain `tokenizers.Tokenizer`, saved as a standard `tokenizer.json`.

`char`: a character is a token, in the order of code points. `byte`: a byte of UTF-8 is a token, and its own id.
`bpe`: byte pairs learned from the text, with GPT-2's way of cutting words. `byte` and `bpe` can write any text.
Where a corpus has several documents, `END_OF_TEXT` is the last id and follows each of them; text that happens to
contain it never becomes that token.
"""

import codecs
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from data.errors import DataError

END_OF_TEXT = "<|endoftext|>"

BPE_TRAINING_CHARACTERS = 64 * 2**20
"""Byte pairs are learned from at most this much text, the first."""

CODE_POINTS = 0x110000

Ids = npt.NDArray[np.int64]
Kind = Literal["char", "byte", "bpe"]


class Token(TypedDict):
    """A token as it can be shown: `bytes` in hexadecimal where they are no whole characters, else None."""

    text: str
    bytes: str | None
    special: bool


Group = tuple[int, int, str]
"""Tokens start … end - 1 that only together make whole characters, and those characters."""


def char_tokenizer(characters: Iterable[str], *, end_of_text: bool = False) -> Tokenizer:
    """One token per character; ids follow the code points."""
    vocabulary = {character: id for id, character in enumerate(sorted(set(characters)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _finish(tokenizer, end_of_text)


def byte_tokenizer(*, end_of_text: bool = False) -> Tokenizer:
    """One token per byte of UTF-8; the byte is the id."""
    vocabulary = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, end_of_text)


def train_bpe(texts: Iterable[str], vocab_size: int, *, end_of_text: bool = False) -> Tokenizer:
    """At most vocab_size tokens: the 256 bytes, pairs learned from the texts, and the end of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - end_of_text,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finish(tokenizer, end_of_text)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`. Raises DataError if it is broken or of no kind that is known here."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise DataError(f"{path} is no readable tokenizer.json: {error}") from None
    tokenizer.encode_special_tokens = True
    try:
        kind_of(tokenizer)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return tokenizer


def kind_of(tokenizer: Tokenizer) -> Kind:
    """How a tokenizer stands for text. Raises DataError if in none of the three ways."""
    model, vocabulary = tokenizer.model, tokenizer.get_vocab(with_added_tokens=False)
    if isinstance(model, models.WordLevel) and all(len(token) == 1 for token in vocabulary):
        return "char"
    if isinstance(model, models.BPE) and isinstance(tokenizer.decoder, decoders.ByteLevel):
        return "byte" if vocabulary == dict(zip(_byte_symbols(), range(256), strict=True)) else "bpe"
    raise DataError("the tokenizer is neither of single characters nor of byte-level pairs")


def end_of_text_id(tokenizer: Tokenizer) -> int | None:
    """The id that follows each document, if there is one."""
    tokens = tokenizer.get_added_tokens_decoder()
    return next((id for id, token in tokens.items() if token.content == END_OF_TEXT), None)


def encoder(tokenizer: Tokenizer) -> Callable[[str], Ids]:
    """The quickest function that gives a tokenizer's ids. It raises DataError for unknown characters."""
    kind = kind_of(tokenizer)
    if kind == "char":
        ids_of_codes = np.full(CODE_POINTS, -1, dtype=np.int64)
        for character, id in tokenizer.get_vocab(with_added_tokens=False).items():
            ids_of_codes[ord(character)] = id
        return lambda text: _encode_characters(ids_of_codes, text)
    if kind == "byte":
        return lambda text: np.frombuffer(_utf8(text), dtype=np.uint8).astype(np.int64)
    return lambda text: np.array(tokenizer.encode(_checked(text), add_special_tokens=False).ids, dtype=np.int64)


def encode(tokenizer: Tokenizer, text: str) -> Ids:
    """Ids of a text, (T,). Raises DataError that names each character the vocabulary lacks."""
    return encoder(tokenizer)(text)


def decode(tokenizer: Tokenizer, ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
    """The text of ids, the end of text included; bytes that are no UTF-8 become U+FFFD."""
    return tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False)


def token_bytes(tokenizer: Tokenizer) -> Ids:
    """How many bytes of UTF-8 each id stands for, (V,); special tokens stand for none."""
    return np.array([len(token) for token in _contents(tokenizer)], dtype=np.int64)


def token_characters(tokenizer: Tokenizer) -> Ids:
    """How many characters each id begins, (V,): its bytes without the continuations of UTF-8."""
    counts = [sum(byte & 0xC0 != 0x80 for byte in token) for token in _contents(tokenizer)]
    return np.array(counts, dtype=np.int64)


def token_labels(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    r"""The text of each id, literally; bytes that are no whole character show as `\xed`."""
    special = tokenizer.get_added_tokens_decoder()
    contents = _contents(tokenizer)
    return [
        special[id].content if id in special else contents[id].decode("utf-8", "backslashreplace")
        for id in map(int, ids)
    ]


def token_units(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[Token], list[Group]]:
    r"""What each id is, and which neighbours belong together: `나` as three bytes is one group.

    Text is literal; bytes that are no whole character show as `\xed`, and form no group where they never become one.
    """
    special = tokenizer.get_added_tokens_decoder()
    contents = _contents(tokenizer)
    pieces = [None if id in special and special[id].special else contents[id] for id in ids]
    labels = token_labels(tokenizer, ids)
    tokens = [
        Token(text=label, bytes=None if piece is None or _whole(piece) else piece.hex(), special=piece is None)
        for label, piece in zip(labels, pieces, strict=True)
    ]
    return tokens, _groups(pieces)


def describe_characters(characters: Iterable[str]) -> str:
    """Characters in words, such as `é (U+00E9)`: the first ten, and how many more."""
    distinct = sorted(set(characters))
    shown = ", ".join(
        f"{character if character.isprintable() else ascii(character)[1:-1]} (U+{ord(character):04X})"
        for character in distinct[:10]
    )
    return shown if len(distinct) <= 10 else f"{shown} and {len(distinct) - 10} more"


def _finish(tokenizer: Tokenizer, end_of_text: bool) -> Tokenizer:
    if end_of_text:
        tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    tokenizer.encode_special_tokens = True
    return tokenizer


def _byte_symbols() -> list[str]:
    """The printable character that the byte-level scheme writes for each byte, 0 to 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def _contents(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes that each id stands for; special tokens stand for none."""
    contents = [b""] * tokenizer.get_vocab_size()
    byte_of = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    in_characters = kind_of(tokenizer) == "char"
    for token, id in tokenizer.get_vocab(with_added_tokens=False).items():
        contents[id] = token.encode() if in_characters else bytes(byte_of[symbol] for symbol in token)
    for id, added in tokenizer.get_added_tokens_decoder().items():
        contents[id] = b"" if added.special else added.content.encode()
    return contents


def _whole(piece: bytes) -> bool:
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _groups(pieces: Sequence[bytes | None]) -> list[Group]:
    """The shortest runs of two tokens or more that are UTF-8 where no shorter one is; None belongs to no group."""
    groups, start = [], 0
    while start < len(pieces):
        end, text = _characters_from(pieces, start)
        if end - start > 1:
            groups.append((start, end, text))
        start = end
    return groups


def _characters_from(pieces: Sequence[bytes | None], start: int) -> tuple[int, str]:
    """Where the characters that begin with a token are complete, and those; one token on where they never are."""
    decoder, text = codecs.getincrementaldecoder("utf-8")(), ""
    for index in range(start, len(pieces)):
        piece = pieces[index]
        if piece is None:
            break
        try:
            text += decoder.decode(piece)
        except UnicodeDecodeError:
            break
        if not decoder.getstate()[0]:
            return index + 1, text
    return start + 1, ""


def _encode_characters(ids_of_codes: Ids, text: str) -> Ids:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ids = ids_of_codes[codes]
    if ids.size and ids.min() < 0:
        unknown = np.flatnonzero(ids < 0)
        first = int(unknown[0])
        line, column = text.count("\n", 0, first) + 1, first - text.rfind("\n", 0, first)
        raise DataError(
            f"the vocabulary has no {describe_characters(map(chr, codes[unknown]))}, first at line {line}, "
            f"column {column}; leave it out, or train with tokenizer: byte or bpe, which can write anything"
        )
    return ids


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise DataError(
            f"{describe_characters(lone)} at position {error.start} is half a character, which no UTF-8 can hold"
        ) from None


def _checked(text: str) -> str:
    _utf8(text)
    return text
