from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data import encoding
from data.encoding import encode_pieces, survey, take, whole_words
from data.errors import DataError
from data.text_files import Piece
from data.tokenizer import byte_tokenizer, char_tokenizer, end_of_text_id, train_bpe

SIGNS = "abté1 \n\t.,'s\u00a0\u2028\x1c\u3000語🙂\0"
TEXTS = ["a'sb  ab\n\n t's 11. é a", "ab ab ab.  ba\u00a0ba 's", SIGNS]
BPE = train_bpe(TEXTS * 3, 300, end_of_text=True)

documents_of_pieces = st.lists(st.lists(st.text(st.sampled_from(SIGNS), min_size=1), min_size=1))


def as_pieces(documents: list[list[str]]) -> list[Piece]:
    return [Piece(text, index == len(document) - 1) for document in documents for index, text in enumerate(document)]


def whole(tokenizer: Tokenizer, documents: list[list[str]]) -> list[int]:
    ids = []
    for document in documents:
        ids += [*tokenizer.encode("".join(document)).ids, end_of_text_id(tokenizer)]
    return ids


@settings(max_examples=300)
@given(documents_of_pieces, st.integers(1, 12), st.integers(1, 30))
def test_streamed_ids_are_those_of_each_whole_document(documents: list[list[str]], block: int, batch: int) -> None:
    with patch.object(encoding, "BLOCK_CHARACTERS", block), patch.object(encoding, "BATCH_CHARACTERS", batch):
        for tokenizer in (BPE, byte_tokenizer(end_of_text=True), char_tokenizer(SIGNS, end_of_text=True)):
            parts = list(encode_pieces(tokenizer, as_pieces(documents)))

            ids = np.concatenate([ids for ids, _ in parts]).tolist() if parts else []
            assert ids == whole(tokenizer, documents)
            assert sum(n for _, n in parts) == sum(len(text) for document in documents for text in document)


def test_a_long_text_is_cut_into_blocks_for_the_threads() -> None:
    text = "the cat's hat,  was\n\nnaïve 🙂 " * 20_000

    pieces = list(whole_words([Piece(text[:123_457], False), Piece(text[123_457:], True)]))

    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) >= len(text) // encoding.BLOCK_CHARACTERS
    assert max(len(piece.text) for piece in pieces) <= encoding.BLOCK_CHARACTERS
    assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [id for piece in pieces for id in BPE.encode(piece.text).ids] == BPE.encode(text).ids


@pytest.mark.parametrize("sign", ["x", " ", "語"])
def test_a_text_without_words_is_refused_before_it_fills_the_memory(sign: str) -> None:
    pieces = (Piece(sign * 1000, False) for _ in range(10**9))

    with patch.object(encoding, "LONGEST_WORD", 5000), pytest.raises(DataError, match="tokenizer: char or byte"):
        list(whole_words(pieces))


@given(documents_of_pieces, st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_a_corpus_is_a_slice_of_its_text(documents: list[list[str]], start: int, length: int) -> None:
    pieces = as_pieces(documents)
    text = "".join(piece.text for piece in pieces)

    taken = list(take(pieces, start, start + length))

    assert "".join(piece.text for piece in taken) == text[start : start + length]
    assert all(piece.text for piece in taken)


def test_both_sides_of_a_cut_have_each_end_of_a_document_once() -> None:
    pieces = as_pieces([["ab", "cd"], ["ef"], ["gh"]])

    for cut in range(1, 8):
        sides = [*take(pieces, 0, cut)], [*take(pieces, cut, 8)]
        ends = [sum(piece.ends_document for piece in side) for side in sides]

        assert ends == [sum(end <= cut for end in (4, 6, 8)), sum(end > cut for end in (4, 6, 8))]


@given(documents_of_pieces)
def test_a_survey_counts_characters_and_documents_and_collects_the_alphabet(documents: list[list[str]]) -> None:
    text = "".join(text for document in documents for text in document)

    found = survey(as_pieces(documents))

    assert (found.characters, found.documents) == (len(text), len(documents))
    assert found.alphabet == "".join(sorted(set(text)))
