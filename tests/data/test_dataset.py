import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from data.config import DataConfig
from data.dataset import encode_corpus, load, prepare
from data.errors import DataError
from data.storage import Dataset, write_ids
from data.tokenizer import char_tokenizer, decode, encode, end_of_text_id, kind_of

Write = Callable[[str, str | bytes], Path]
ROOT = Path(__file__).parents[2]
REAL = ROOT / "data/corpora/tinyshakespeare.txt"
PROSE = "The cat sat on the mat, and the dog's hat was naïve.\n\n" * 37


class Told:
    """What `prepare` tells while it works."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def prepare(self, **keys: object) -> Dataset:
        self.lines, self.steps = [], []
        return prepare(DataConfig(**keys), say=self.lines.append, progress=lambda *step: self.steps.append(step))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.skipif(not REAL.is_file(), reason="needs data/corpora/tinyshakespeare.txt")
def test_tinyshakespeare_is_split_and_encoded_as_in_nanogpt(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = REAL.read_text(encoding="utf-8")
    stoi = {character: i for i, character in enumerate(sorted(set(text)))}

    dataset = told.prepare(source="tinyshakespeare", tokenizer="char")

    assert (len(dataset.train), len(dataset.validation)) == (1_003_854, 111_540)
    assert dataset.tokenizer.get_vocab_size() == 65
    assert [*dataset.train, *dataset.validation] == [stoi[character] for character in text]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5])
def test_a_text_is_cut_at_one_character(told: Told, write: Write, kind: str, fraction: float) -> None:
    write("a.txt", PROSE)
    cut = int((1 - fraction) * len(PROSE))

    dataset = told.prepare(source="a.txt", tokenizer=kind, validation_fraction=fraction)

    assert isinstance(dataset.train, np.memmap)
    assert dataset.train.dtype == np.uint16
    assert decode(dataset.tokenizer, dataset.train) == PROSE[:cut]
    assert decode(dataset.tokenizer, dataset.validation) == PROSE[cut:]
    assert kind_of(dataset.tokenizer) == kind
    assert end_of_text_id(dataset.tokenizer) is None
    assert told.steps[-1] == (len(PROSE), len(PROSE))
    assert told.steps == sorted(told.steps)


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_an_end_follows_each_of_several_documents(told: Told, write: Write, kind: str) -> None:
    write("texts/a.txt", PROSE)
    write("texts/b.jsonl", '{"text": "one"}\n{"text": ""}\n{"text": "two"}')

    dataset = told.prepare(source="texts", tokenizer=kind)

    ids = np.concatenate([dataset.train, dataset.validation])
    end = dataset.tokenizer.get_vocab_size() - 1
    assert decode(dataset.tokenizer, ids).split("<|endoftext|>") == [PROSE, "one", "two", ""]
    assert (ids == end).sum() == 3


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_a_validation_source_is_encoded_whole(told: Told, write: Write, kind: str) -> None:
    write("a.txt", PROSE)
    write("b.txt", "the naïve cat\n")

    dataset = told.prepare(source="a.txt", validation="b.txt", tokenizer=kind)

    assert decode(dataset.tokenizer, dataset.train) == PROSE
    assert decode(dataset.tokenizer, dataset.validation) == "the naïve cat\n"
    assert told.steps[-1] == (len(PROSE) + 14, len(PROSE) + 14)


def test_a_character_of_the_validation_that_training_lacks_is_named(told: Told, write: Write) -> None:
    write("a.txt", PROSE)
    write("b.txt", "the cat é\0 🙂")

    with pytest.raises(DataError, match="byte or bpe") as caught:
        told.prepare(source="a.txt", validation="b.txt", tokenizer="char")

    assert r"b.txt has characters that the training text lacks: \x00 (U+0000), é (U+00E9), 🙂 (" in str(caught.value)


def test_ids_that_need_it_are_stored_wider(told: Told, write: Write) -> None:
    text = "".join(chr(code) for code in range(0x20, 0x11170) if not 0xD800 <= code < 0xE000).replace("\ufeff", "")
    write("a.txt", text)

    dataset = told.prepare(source="a.txt", tokenizer="char", validation_fraction=0.001)

    assert dataset.tokenizer.get_vocab_size() == len(set(text)) > 2**16
    assert dataset.train.dtype == np.uint32
    assert decode(dataset.tokenizer, np.concatenate([dataset.train, dataset.validation])) == text


def test_the_second_time_nothing_is_encoded(told: Told, write: Write) -> None:
    write("a.txt", PROSE)
    first = told.prepare(source="a.txt")
    write("elsewhere/b.txt", PROSE)

    again, moved = told.prepare(source="a.txt"), told.prepare(source="elsewhere/b.txt")

    assert (again.key, moved.key) == (first.key, first.key)
    assert (told.lines, told.steps) == ([], [])


def test_settings_that_change_the_ids_have_a_key_of_their_own(told: Told, write: Write) -> None:
    write("a.txt", PROSE)
    write("b.txt", "the naïve cat\n")
    settings: list[dict[str, object]] = [
        {},
        {"vocab_size": 300},
        {"tokenizer": "char"},
        {"tokenizer": "byte"},
        {"validation_fraction": 0.2},
        {"validation": "b.txt"},
    ]

    keys = [told.prepare(source="a.txt", **keys).key for keys in settings]

    assert len(set(keys)) == len(settings)
    assert told.prepare(source="a.txt", tokenizer="bpe", vocab_size=1024, validation_fraction=0.1).key == keys[0]


def test_a_source_that_changed_is_encoded_anew_and_it_is_said(told: Told, write: Write) -> None:
    write("a.txt", PROSE)
    first = told.prepare(source="a.txt", tokenizer="char")
    assert not any("changed" in line for line in told.lines)
    told.prepare(source="a.txt", tokenizer="byte")
    assert not any("changed" in line for line in told.lines)
    write("a.txt", PROSE + "!")

    second = told.prepare(source="a.txt", tokenizer="char")

    assert "a.txt has changed since it was last encoded" in told.lines
    assert len(second.train) + len(second.validation) == len(PROSE) + 1
    assert second.key != first.key


def test_the_dataset_outlives_its_corpus(told: Told, write: Write) -> None:
    path = write("a.txt", PROSE)
    dataset = told.prepare(source="a.txt")
    path.unlink()

    loaded = load(dataset.key, say=told.lines.append)

    assert loaded is not None
    assert loaded.train.tolist() == dataset.train.tolist()
    assert loaded.tokenizer.to_str() == dataset.tokenizer.to_str()
    assert load("0" * 32, say=told.lines.append) is None


def truncate(folder: Path) -> None:
    path = folder / "train.npy"
    path.write_bytes(path.read_bytes()[:-1])


def empty(folder: Path) -> None:
    (folder / "validation.npy").write_bytes(b"")


def replace_by_text(folder: Path) -> None:
    (folder / "validation.npy").write_bytes(b"{}" * 40)


def lose_a_file(folder: Path) -> None:
    (folder / "validation.npy").unlink()


def shorten(folder: Path) -> None:
    write_ids(folder / "train.npy", [np.zeros(5, dtype=np.int64)], 30)


def widen(folder: Path) -> None:
    ids = np.load(folder / "train.npy")
    np.save(folder / "train.npy", ids.astype(np.uint32))


def spoil_an_id(folder: Path) -> None:
    ids = np.load(folder / "validation.npy")
    ids[7] = 999
    np.save(folder / "validation.npy", ids)


def break_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")


def break_the_description(folder: Path) -> None:
    (folder / "dataset.json").write_text(json.dumps({"tokens": {}}), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncate, "train.npy"),
        (empty, "validation.npy"),
        (replace_by_text, "magic string"),
        (lose_a_file, "validation.npy"),
        (shorten, "of shape (5,) instead of"),
        (widen, "uint32"),
        (spoil_an_id, "id 999 at position 7 of a vocabulary of 20"),
        (break_the_tokenizer, "no readable tokenizer.json"),
        (break_the_description, "dataset.json is missing or not what was written"),
    ],
)
def test_a_damaged_entry_is_rebuilt_and_it_is_said(
    told: Told, write: Write, damage: Callable[[Path], None], said: str
) -> None:
    write("a.txt", PROSE)
    dataset = told.prepare(source="a.txt", tokenizer="char")
    before = dataset.train.tolist(), dataset.validation.tolist()
    damage(dataset.folder)
    assert load(dataset.key, say=told.lines.append) is None

    rebuilt = told.prepare(source="a.txt", tokenizer="char")

    assert said in told.lines[0]
    assert told.lines[0].startswith("a damaged cache entry is not used: ")
    assert (rebuilt.train.tolist(), rebuilt.validation.tolist()) == before
    told.prepare(source="a.txt", tokenizer="char")
    assert told.lines == []


def test_several_at_once_share_one_entry_and_leave_nothing_else(write: Write, tmp_path: Path) -> None:
    write("a.txt", PROSE)

    with ThreadPoolExecutor(6) as pool:
        datasets = list(pool.map(lambda _: Told().prepare(source="a.txt", tokenizer="byte"), range(6)))

    assert {decode(dataset.tokenizer, dataset.train) for dataset in datasets} == {PROSE[: int(0.9 * len(PROSE))]}
    assert [path.name for path in (tmp_path / "cache/encoded").iterdir()] == [datasets[0].key]


def test_nothing_is_left_of_an_encoding_that_failed(told: Told, write: Write, tmp_path: Path) -> None:
    write("a.txt", b"text" * 1000 + b"\xff")

    with pytest.raises(DataError, match="offset 4000"):
        told.prepare(source="a.txt")

    assert list((tmp_path / "cache/encoded").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(
    told: Told, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.txt", PROSE)
    monkeypatch.setenv("ATTN_CACHE_DIR", str(write("file", "") / "cache"))

    with pytest.raises(DataError, match=r"cannot keep the encoded text in .*file/cache/encoded: Not a directory"):
        told.prepare(source="a.txt")


@pytest.mark.parametrize("content", ["", "\ufeff"])
@pytest.mark.parametrize("role", ["source", "validation"])
def test_an_empty_corpus_is_an_error(told: Told, write: Write, content: str, role: str) -> None:
    write("a.txt", PROSE)
    write("empty.txt", content)

    with pytest.raises(DataError, match=r"empty\.txt has no text in it"):
        told.prepare(**({"source": "a.txt"} | {role: "empty.txt"}))


@pytest.mark.parametrize(
    ("text", "keys", "rule"),
    [
        ("abcdefghij", {}, r"validation part of a\.txt has 1 of at least 2 tokens.* 0\.1 splits 10 characters"),
        ("abc", {}, "validation part of a.txt has 1 of"),
        ("abcdefghij", {"validation_fraction": 0.95}, "train part of a.txt has 0 of at least 2 tokens"),
        ("a", {"validation": "b.txt"}, "a.txt is 1 token long; at least 2"),
        ("bcd", {"validation": "b.txt"}, "b.txt is 1 token long; at least 2"),
    ],
)
def test_a_part_without_a_target_is_an_error_with_the_numbers(
    told: Told, write: Write, text: str, keys: dict[str, object], rule: str
) -> None:
    write("a.txt", text)
    write("b.txt", text[0])

    with pytest.raises(DataError, match=rule):
        told.prepare(source="a.txt", tokenizer="char", **keys)


def test_a_text_is_encoded_with_the_tokenizer_of_a_run(write: Write) -> None:
    write("a.txt", "\ufeffab\r\nba")
    tokenizer = char_tokenizer("ab\n")

    assert encode_corpus(tokenizer, "a.txt").tolist() == encode(tokenizer, "ab\nba").tolist()
    write("a.txt", "abc")
    with pytest.raises(DataError, match=r"a\.txt has characters that the training text lacks: c \(U\+0063\)"):
        encode_corpus(tokenizer, "a.txt")
    write("a.txt", "")
    with pytest.raises(DataError, match="no text"):
        encode_corpus(tokenizer, "a.txt")
