"""A source, as a configuration names it -> the documents of a corpus, streamed in a fixed order."""

import difflib
import glob
import hashlib
import http.client
import os
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data import python_docs
from data.cache import cache_folder
from data.config import CORPORA, TASKS
from data.errors import DataError
from data.text_files import Piece, file_digest, read_file

TEXT_SUFFIXES = (".txt", ".md", ".jsonl")
"""What is read of a folder; a file that is named itself may be called anything."""

TINYSHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINYSHAKESPEARE_BYTES = 1_115_394
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
DOWNLOAD_TIMEOUT = 30
"""Seconds without an answer."""


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order: those of files, and of `python-docs` where a part is None."""

    name: str
    parts: tuple[Path | None, ...]

    def pieces(self) -> Iterator[Piece]:
        """All text, document after document."""
        for path in self.parts:
            if path is None:
                yield from (Piece(text, True) for text in python_docs.documents())
            else:
                yield from read_file(path)

    def identity(self) -> str:
        """A digest of the content, wherever its files lie."""
        digest = hashlib.sha256()
        for path in self.parts:
            kind = "" if path is None else "lines" if path.suffix.lower() == ".jsonl" else "text"
            digest.update(f"{kind} {python_docs.identity() if path is None else file_digest(path)}\n".encode())
        return digest.hexdigest()


def open_corpus(source: str | Sequence[str]) -> Corpus:
    """The corpus of a file, a glob, a folder, a built-in name or a list of them; a file counts once.

    Raises DataError for what is missing, empty or no file; the text itself is checked while it is read.
    """
    names = [source] if isinstance(source, str) else list(source)
    parts = dict.fromkeys(part for name in names for part in _resolve(name))
    return Corpus(name=", ".join(names), parts=tuple(parts))


def _resolve(name: str) -> list[Path | None]:
    if name in TASKS:
        raise DataError(f"{name} is a task, not text; a file of that name is written ./{name}")
    if name == "python-docs":
        return [None]
    if name == "tinyshakespeare":
        return [tinyshakespeare()]
    try:
        return [*_find_files(name)]
    except OSError as error:
        raise DataError(f"cannot read {error.filename or name}: {error.strerror}") from error


def _find_files(name: str) -> list[Path]:
    path = Path(name).expanduser() if name.startswith("~/") else Path(name)
    if path.is_dir():
        files = _files_below(path)
        if not files:
            raise DataError(f"the folder {name} has no file that ends in {', '.join(TEXT_SUFFIXES)}")
        return files
    if path.is_file():
        return [path]
    if path.exists():
        raise DataError(f"{name} is neither a file nor a folder")
    if any(sign in name for sign in "*?["):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - may be absolute
        files = [match for match in matches if match.is_file()]
        if not files:
            raise DataError(f"no file matches {name}")
        return files
    raise DataError(f"there is no {name}{_near_names(path)}")


def _files_below(folder: Path) -> list[Path]:
    """Text files of a folder and its subfolders, sorted; hidden ones are left out."""

    def stop(error: OSError) -> None:
        raise error

    files = []
    for root, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(root, name) for name in names if not name.startswith(".")]
    return sorted(path for path in files if path.suffix.lower() in TEXT_SUFFIXES and path.is_file())


def _near_names(path: Path) -> str:
    siblings = {entry.name: str(entry) for entry in path.parent.iterdir()} if path.parent.is_dir() else {}
    built_in = {name: name for name in (*CORPORA, *TASKS)} if path.parent == Path() else {}
    candidates = siblings | built_in
    near = difflib.get_close_matches(path.name, candidates, n=3)
    if near:
        return f"; did you mean {' or '.join(candidates[name] for name in near)}?"
    return f"; the built-in names are {', '.join((*CORPORA, *TASKS))}" if built_in else ""


def tinyshakespeare() -> Path:
    """The file of the built-in corpus: of the working directory, of the cache, or downloaded to the cache."""
    local, cached = Path("data/corpora/tinyshakespeare.txt"), cache_folder() / "corpora/tinyshakespeare.txt"
    for path in (local, cached):
        if path.is_file():
            _check_tinyshakespeare(path)
            return path
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        _download(TINYSHAKESPEARE_URL, cached)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"tinyshakespeare could not be downloaded ({error}). Put the file {TINYSHAKESPEARE_URL} "
            f"at {local} or at {cached}"
        ) from error
    return cached


def _check_tinyshakespeare(path: Path) -> None:
    if not _is_tinyshakespeare(path):
        raise DataError(
            f"{path} was changed: it is not the text of {TINYSHAKESPEARE_BYTES} bytes and SHA-256 "
            f"{TINYSHAKESPEARE_SHA256} that tinyshakespeare names. Remove it to have it fetched again, or give its "
            "path as source to train on it as it is"
        )


def _is_tinyshakespeare(path: Path) -> bool:
    return path.stat().st_size == TINYSHAKESPEARE_BYTES and file_digest(path) == TINYSHAKESPEARE_SHA256


def _download(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as response:
        content = response.read(TINYSHAKESPEARE_BYTES + 1)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        path = Path(folder, target.name)
        path.write_bytes(content)
        if not _is_tinyshakespeare(path):
            raise OSError(f"what {url} sent, {len(content)} bytes or more, is not the text that was expected")
        path.replace(target)
