"""Encoded corpora in the user's cache: how an entry is written, checked and opened.

    <cache>/encoded/<key>/  train.npy  validation.npy  tokenizer.json  dataset.json

An entry is built under another name and renamed whole, so it is complete or absent.
"""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from data.cache import cache_folder
from data.errors import DataError
from data.tokenizer import Ids, load_tokenizer

SPLITS = ("train", "validation")

SCAN_IDS = 2**22
"""Ids that are checked at once."""

StoredIds = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Dataset:
    """An encoded corpus; train and validation are memory-mapped ids, (N,)."""

    key: str
    folder: Path
    description: str
    tokenizer: Tokenizer
    train: StoredIds
    validation: StoredIds


def entry_folder(key: str) -> Path:
    """Where the entry of a key is, or would be."""
    return cache_folder() / "encoded" / key


def ids_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The narrowest type that holds the ids of a vocabulary."""
    return np.dtype("<u2" if vocabulary <= 2**16 else "<u4")


def write_ids(path: Path, parts: Iterable[Ids], vocabulary: int) -> int:
    """Write ids, as they come, into an .npy file; returns their number."""
    dtype = ids_dtype(vocabulary)

    def header(count: int) -> dict[str, Any]:
        return {"descr": dtype.str, "fortran_order": False, "shape": (count,)}

    count = 0
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header(0))  # numpy leaves room for a larger number
        for ids in parts:
            file.write(ids.astype(dtype).tobytes())
            count += ids.size
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, header(count))
        file.flush()
        os.fsync(file.fileno())  # the entry is renamed into place, and must not be empty after a power cut
    return count


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write what `read_about` reads."""
    (folder / "dataset.json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def read_about(folder: Path) -> dict[str, Any]:
    """What dataset.json tells of an entry. Raises DataError if it is missing or broken."""
    path = folder / "dataset.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about.keys() >= {"description", "tokens", "names", "recipe"} and about["tokens"].keys() == set(SPLITS):
            return dict(about)
    except (OSError, ValueError, AttributeError):
        pass
    raise DataError(f"{path} is missing or not what was written")


def move_whole(building: Path, folder: Path) -> None:
    """Rename a finished entry into place; where another process was quicker, its entry stays."""
    if folder.is_dir() and not _is_sound(folder):
        shutil.rmtree(folder)
    try:
        building.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def open_entry(folder: Path) -> Dataset:
    """An entry, checked. Raises DataError that says what is wrong with it."""
    about = read_about(folder)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    train, validation = (
        open_ids(folder / f"{split}.npy", tokenizer.get_vocab_size(), tokens=about["tokens"][split]) for split in SPLITS
    )
    return Dataset(folder.name, folder, about["description"], tokenizer, train, validation)


def _is_sound(folder: Path) -> bool:
    try:
        open_entry(folder)
    except DataError:
        return False
    return True


def open_ids(path: Path, vocabulary: int, *, tokens: int | None = None) -> StoredIds:
    """Memory-mapped ids of an .npy file, (N,), each below `vocabulary`, and `tokens` of them where that is known.

    Raises DataError that says what is wrong with the file.
    """
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise DataError(f"{path} is no file")
    try:
        ids = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: {error}") from None
    expected = ids_dtype(vocabulary)
    if ids.dtype != expected or ids.ndim != 1 or (tokens is not None and len(ids) != tokens):
        length = "any length" if tokens is None else f"length {tokens}"
        raise DataError(f"{path} holds {ids.dtype} of shape {ids.shape} instead of {expected} of {length}")
    with path.open("rb") as file:  # read, not mapped: scanning a large map would count as memory in use
        file.seek(ids.offset)
        for start in range(0, len(ids), SCAN_IDS):
            part = np.fromfile(file, expected, min(SCAN_IDS, len(ids) - start))
            if part.max() >= vocabulary:
                at = int(np.argmax(part >= vocabulary))
                raise DataError(f"{path}: id {part[at]} at position {start + at} of a vocabulary of {vocabulary}")
    return ids
