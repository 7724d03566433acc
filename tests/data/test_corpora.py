import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from data import corpora
from data.corpora import open_corpus
from data.errors import DataError

Write = Callable[[str, str | bytes], Path]
REAL = Path(__file__).parents[2] / "data/corpora/tinyshakespeare.txt"


def documents(source: str | list[str]) -> list[str]:
    texts = [""]
    for piece in open_corpus(source).pieces():
        texts[-1] += piece.text
        if piece.ends_document:
            texts.append("")
    return texts[:-1]


@pytest.fixture
def library(write: Write) -> None:
    write("books/b.txt", "B")
    write("books/a.md", "A")
    write("books/deep/C.TXT", "C")
    write("books/deep/d.jsonl", '{"text": "D1"}\n{"text": "D2"}')
    write("books/picture.png", b"\x89PNG")
    write("books/empty.txt", "")
    write("books/.hidden.txt", "hidden")
    write("books/.git/e.txt", "hidden")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("books/b.txt", ["B"]),
        (["books/b.txt", "books/a.md"], ["B", "A"]),
        (["books/b.txt", "./books/b.txt", "books/*.txt"], ["B"]),
        ("books/*.*", None),
        ("books/[ab].*", ["A", "B"]),
        ("books/**/*.[tT]*", ["B", "C"]),
        ("books", ["A", "B", "C", "D1", "D2"]),
        ("./books/", ["A", "B", "C", "D1", "D2"]),
        (["books/deep", "books"], ["C", "D1", "D2", "A", "B"]),
    ],
)
def test_files_come_in_a_fixed_order_once(source: str | list[str], expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(DataError, match=r"picture\.png"):
            documents(source)
    else:
        assert documents(source) == expected


def test_a_file_of_any_suffix_can_be_named_and_brackets_in_its_name_are_no_pattern(write: Write) -> None:
    write("notes[1].org", "N")

    assert documents("notes[1].org") == ["N"]


def test_the_name_of_a_task_is_a_file_only_as_a_path(write: Write) -> None:
    write("copy", "text")

    assert documents("./copy") == ["text"]
    with pytest.raises(DataError, match=r"copy is a task.*\./copy"):
        open_corpus("copy")


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("bokks.txt", r"no bokks\.txt; did you mean books\.txt\?"),
        ("tiny-shakespeare", "did you mean tinyshakespeare"),
        ("inducton", "did you mean induction"),
        ("texts/frst.txt", r"did you mean texts/first\.txt"),
        ("nowhere/at/all.txt", r"no nowhere/at/all\.txt$"),
        ("zzzzzz", "built-in names are python-docs"),
        ("*.rst", r"no file matches \*\.rst"),
        ("texts/**/*.md", "no file matches"),
        ("hollow", r"folder hollow has no file that ends in \.txt, \.md, \.jsonl"),
        ("pipe", "neither a file nor a folder"),
        ("a\0b", "there is no a"),
        ("x" * 5000, "cannot read|there is no"),
        ("~nobody-of-this-name/x.txt", "there is no"),
    ],
)
def test_what_cannot_be_found_is_named_with_what_is_near(write: Write, source: str, rule: str) -> None:
    write("books.txt", "B")
    write("texts/first.txt", "F")
    write("hollow/picture.png", b"\x89PNG")
    os.mkfifo("pipe")

    with pytest.raises(DataError, match=rule):
        open_corpus(source)


def test_a_file_that_may_not_be_read_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("secret.txt", "S")

    def refuse(self: Path, mode: str = "r") -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", refuse)  # root, who may run the tests, can read any file

    for read in (lambda: documents("secret.txt"), lambda: open_corpus("secret.txt").identity()):
        with pytest.raises(DataError, match=f"^cannot read {path.name}: Permission denied$"):
            read()


def test_identity_follows_content_and_not_names(write: Write) -> None:
    one, same, other = write("1.txt", "abc"), write("2.txt", "abc"), write("3.txt", "abd")

    identities = [open_corpus(str(path)).identity() for path in (one, same, other)]

    assert identities[0] == identities[1] != identities[2]
    assert open_corpus(["1.txt", "3.txt"]).identity() != open_corpus(["3.txt", "1.txt"]).identity()


TEXT = b"First Citizen:\nBefore we proceed\n"


@pytest.fixture
def small_play(monkeypatch: pytest.MonkeyPatch, write: Write) -> Path:
    """A home of tinyshakespeare that needs no network, with a text of its own."""
    home = write("home/input.txt", TEXT)
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", home.as_uri())
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_BYTES", len(TEXT))
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_SHA256", hashlib.sha256(TEXT).hexdigest())
    return home


def test_tinyshakespeare_is_downloaded_once_and_kept(small_play: Path) -> None:
    first = documents("tinyshakespeare")
    small_play.unlink()

    assert documents("tinyshakespeare") == first == [TEXT.decode()]


@pytest.mark.usefixtures("small_play")
def test_tinyshakespeare_of_the_working_directory_comes_first(write: Write) -> None:
    local = write("data/corpora/tinyshakespeare.txt", TEXT)

    assert open_corpus("tinyshakespeare").parts == (local.relative_to(Path.cwd()),)


@pytest.mark.usefixtures("small_play")
@pytest.mark.parametrize("content", [TEXT[:-1], TEXT + b"x", TEXT.replace(b"F", b"f"), b""])
@pytest.mark.parametrize("place", ["data/corpora", "../cache/corpora"])
def test_a_changed_tinyshakespeare_is_refused(write: Write, content: bytes, place: str) -> None:
    write(f"{place}/tinyshakespeare.txt", content)

    with pytest.raises(DataError, match=r"tinyshakespeare\.txt was changed.*fetched again"):
        open_corpus("tinyshakespeare")


@pytest.mark.parametrize("content", [b"<html>not found</html>", TEXT + b"more", b""])
def test_a_download_of_something_else_is_refused_and_not_kept(small_play: Path, content: bytes) -> None:
    small_play.write_bytes(content)

    with pytest.raises(DataError, match="not the text that was expected"):
        open_corpus("tinyshakespeare")
    small_play.write_bytes(TEXT)
    assert documents("tinyshakespeare") == [TEXT.decode()]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/input.txt", "file:///nowhere/input.txt"])
def test_offline_the_places_for_the_file_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", url)

    with pytest.raises(DataError, match="could not be downloaded") as caught:
        open_corpus("tinyshakespeare")

    assert "data/corpora/tinyshakespeare.txt" in str(caught.value)
    assert str(tmp_path / "cache/corpora/tinyshakespeare.txt") in str(caught.value)


@pytest.mark.skipif(not REAL.is_file(), reason="needs data/corpora/tinyshakespeare.txt")
def test_the_real_tinyshakespeare_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REAL.parents[2])

    assert len(documents("tinyshakespeare")[0]) == 1_115_394
