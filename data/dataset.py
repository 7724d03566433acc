"""A corpus, encoded once: `prepare` gives the dataset of a configuration, from the cache if it is there.

The key of a dataset is a digest of the content, the settings and the format. Without a validation source, the
corpus is cut at one character: the first int((1 - validation_fraction) * characters) are to train on, the others
to validate, and each side is encoded by itself. The vocabulary comes from `source` alone.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from data.config import CORPORA, DataConfig
from data.corpora import Corpus, open_corpus
from data.encoding import Survey, encode_pieces, survey, take, whole_words
from data.errors import DataError
from data.storage import (
    Dataset,
    StoredIds,
    entry_folder,
    ids_dtype,
    move_whole,
    open_entry,
    read_about,
    write_about,
    write_ids,
)
from data.tokenizer import (
    BPE_TRAINING_CHARACTERS,
    Ids,
    byte_tokenizer,
    char_tokenizer,
    describe_characters,
    kind_of,
    train_bpe,
)

FORMAT = 1
"""Raised whenever this package would write other files for the same corpus."""

Say = Callable[[str], None]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Plan:
    """What is encoded, and how."""

    config: DataConfig
    source: Corpus
    validation: Corpus | None

    def recipe(self) -> dict[str, object]:
        """All that decides the result, JSON-able."""
        config = self.config
        return {
            "format": FORMAT,
            "content": [corpus.identity() for corpus in (self.source, self.validation) if corpus],
            "tokenizer": config.tokenizer_kind,
            "vocab_size": config.bpe_vocabulary if config.tokenizer_kind == "bpe" else None,
            "validation_fraction": None if self.validation else config.held_out_fraction,
        }

    def names(self) -> list[object]:
        """The source and the validation source, whatever the working directory."""
        return [_absolute(self.config.source), _absolute(self.config.validation)]


def prepare(config: DataConfig, *, say: Say, progress: Progress) -> Dataset:
    """The dataset of a configuration, from the cache or encoded now.

    `say` is told in a line what takes time or differs from last time; `progress` gets the characters encoded so
    far and in all. Raises DataError for text that cannot be used, and for a cache that cannot be written.
    """
    validation = open_corpus(config.validation) if config.validation is not None else None
    plan = _Plan(config, open_corpus(config.source), validation)
    recipe = plan.recipe()
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:32]
    found = load(key, say=say)
    if found is not None:
        return found
    if _was_encoded_with_other_content(plan.names(), recipe):
        say(f"{plan.source.name} has changed since it was last encoded")
    folder = entry_folder(key)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-", ignore_cleanup_errors=True) as name:
            about = _encode_into(Path(name), plan, say=say, progress=progress)
            write_about(Path(name), about | {"names": plan.names(), "recipe": recipe})
            move_whole(Path(name), folder)
    except OSError as error:
        raise DataError(f"cannot keep the encoded text in {folder.parent}: {error.strerror}") from error
    return open_entry(folder)


def load(key: str, *, say: Say) -> Dataset | None:
    """The dataset of a key, whether or not its corpus still exists; None where the cache has none that is sound."""
    folder = entry_folder(key)
    if not folder.is_dir():
        return None
    try:
        return open_entry(folder)
    except DataError as error:
        say(f"a damaged cache entry is not used: {error}")
        return None


def encode_corpus(tokenizer: Tokenizer, source: str | list[str]) -> StoredIds:
    """All of a source as ids in memory, (N,). Raises DataError for characters that the vocabulary lacks."""
    corpus = open_corpus(source)
    _check_text(tokenizer, corpus)
    dtype = ids_dtype(tokenizer.get_vocab_size())
    return np.concatenate([ids.astype(dtype) for ids, _ in encode_pieces(tokenizer, corpus.pieces())])


def _encode_into(folder: Path, plan: _Plan, *, say: Say, progress: Progress) -> dict[str, object]:
    """Write the tokenizer and the ids of both splits; returns what is to be told of them."""
    overview = survey(plan.source.pieces())
    if not overview.characters:
        raise DataError(f"{plan.source.name} has no text in it")
    cut = overview.characters if plan.validation else int((1 - plan.config.held_out_fraction) * overview.characters)
    tokenizer = _make_tokenizer(plan, overview, cut, say=say)
    tokenizer.save(str(folder / "tokenizer.json"))
    if plan.validation is None:
        total = overview.characters
        held_out = take(plan.source.pieces(), cut, total)
    else:
        total = cut + _check_text(tokenizer, plan.validation)
        held_out = plan.validation.pieces()
    say(f"encoding {plan.source.name}: {total:,} characters")
    tokens = {}
    for split, pieces, start in (("train", take(plan.source.pieces(), 0, cut), 0), ("validation", held_out, cut)):
        ids = _reporting(encode_pieces(tokenizer, pieces), progress, start, total)
        tokens[split] = write_ids(folder / f"{split}.npy", ids, tokenizer.get_vocab_size())
        if tokens[split] < 2:
            raise DataError(_too_little(split, tokens[split], plan, overview))
    description = (
        f"{plan.source.name}: {tokens['train']:,} tokens to train on, {tokens['validation']:,} to validate, "
        f"{plan.config.tokenizer_kind} vocabulary of {tokenizer.get_vocab_size():,}"
    )
    return {"description": description, "tokens": tokens}


def _make_tokenizer(plan: _Plan, overview: Survey, cut: int, *, say: Say) -> Tokenizer:
    several = overview.documents > 1
    match plan.config.tokenizer_kind:
        case "char":
            return char_tokenizer(overview.alphabet, end_of_text=several)
        case "byte":
            return byte_tokenizer(end_of_text=several)
        case "bpe":
            size, characters = plan.config.bpe_vocabulary, min(cut, BPE_TRAINING_CHARACTERS)
            say(f"learning {size:,} tokens from {characters:,} characters of {plan.source.name}")
            words = whole_words(take(plan.source.pieces(), 0, characters))
            return train_bpe((piece.text for piece in words), size, end_of_text=several)


def _check_text(tokenizer: Tokenizer, corpus: Corpus) -> int:
    """The number of characters of a corpus that the tokenizer was not made from, if it can write them all."""
    overview = survey(corpus.pieces())
    if not overview.characters:
        raise DataError(f"{corpus.name} has no text in it")
    if kind_of(tokenizer) == "char":
        missing = set(overview.alphabet) - set(tokenizer.get_vocab(with_added_tokens=False))
        if missing:
            raise DataError(
                f"{corpus.name} has characters that the training text lacks: {describe_characters(missing)}; "
                "remove them, or train with tokenizer: byte or bpe, which can write anything"
            )
    return overview.characters


def _too_little(split: str, tokens: int, plan: _Plan, overview: Survey) -> str:
    if plan.validation is not None:
        name = plan.source.name if split == "train" else plan.validation.name
        return f"{name} is {tokens} token long; at least 2 are needed, one to predict the other"
    return (
        f"the {split} part of {plan.source.name} has {tokens} of at least 2 tokens, as validation_fraction "
        f"{plan.config.held_out_fraction:g} splits {overview.characters} characters; "
        "give more text or another fraction"
    )


def _reporting(parts: Iterable[tuple[Ids, int]], progress: Progress, start: int, total: int) -> Iterator[Ids]:
    done = start
    for ids, characters in parts:
        yield ids
        done += characters
        progress(done, total)


def _was_encoded_with_other_content(names: list[object], recipe: dict[str, object]) -> bool:
    for path in entry_folder("").glob("*/dataset.json"):
        try:
            about = read_about(path.parent)
        except DataError:
            continue
        if about["names"] == names and about["recipe"] == recipe | {"content": about["recipe"]["content"]}:
            return True
    return False


def _absolute(source: str | list[str] | None) -> object:
    if isinstance(source, list):
        return [_absolute(name) for name in source]
    return source if source is None or source in CORPORA else str(Path(source).absolute())
