"""The record of a run's attention: what is written is read again, a kill loses no more than the last line, and
what is damaged, foreign, newer or hostile is refused by name."""

import base64
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.peak import peak
from transformer.errors import NewerFormatError, UserError
from transformer.inspection.map_file import MAX_VALUES, decode_maps, encode_maps, pool_maps, smallest_pool
from transformer.inspection.record import MAX_RECORDED_WEIGHTS, Record, StoredProbe

STEP = 500


def some_maps(n_maps: int, tokens: int, seed: int = 1) -> np.ndarray:
    """Causal attention with rows that sum to 1."""
    logits = np.random.default_rng(seed).normal(scale=3, size=(n_maps, tokens, tokens))
    weights = np.tril(np.exp(logits))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


# Maps as bytes


def reference_bytes(maps: np.ndarray) -> bytes:
    """Version 1, written down a second time, a value at a time."""
    n_maps, tokens, _ = maps.shape
    codes = [
        round(float(maps[n, i, j]) * 65534) if np.isfinite(maps[n, i, j]) else 65535
        for n in range(n_maps)
        for i in range(tokens)
        for j in range(i + 1)
    ]
    header = b"ATTNMAPS" + struct.pack("<HHIII", 1, 1, n_maps, tokens, tokens)
    return header + bytes(code >> 8 for code in codes) + bytes(code & 255 for code in codes)


def unpacked(content: bytes) -> bytes:
    return content[:24] + zlib.decompress(content[24:])


@pytest.mark.parametrize(("n_maps", "tokens"), [(1, 1), (3, 2), (5, 7), (2, 13)])
def test_the_bytes_are_those_of_the_format(n_maps: int, tokens: int) -> None:
    maps = some_maps(n_maps, tokens)
    maps[-1, -1, 0] = np.nan
    assert unpacked(encode_maps(maps)) == reference_bytes(maps)


@given(st.integers(1, 5), st.integers(1, 23), st.integers(0, 99))
def test_maps_come_back_to_half_a_step_of_the_scale(n_maps: int, tokens: int, seed: int) -> None:
    maps = some_maps(n_maps, tokens, seed)
    header, decoded = decode_maps(encode_maps(maps))
    assert (header.n_maps, header.side, header.tokens, header.pool) == (n_maps, tokens, tokens, 1)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, maps, atol=0.5 / 65534 + 1e-7)
    assert (decoded[:, *np.triu_indices(tokens, 1)] == 0).all()


def test_0_and_1_are_exact_and_what_is_no_number_stays_none() -> None:
    maps = np.zeros((2, 3, 3), np.float32)
    maps[0] = np.tril([[1, 0, 0], [0, 1, 0], [np.nan, np.inf, -np.inf]])
    maps[1, :, 0] = 1
    _, decoded = decode_maps(encode_maps(maps))
    np.testing.assert_array_equal(decoded, np.where(np.isinf(maps), np.nan, maps))


@given(st.integers(1, 29), st.integers(1, 31))
def test_pooling_keeps_the_largest_weight_of_every_block(tokens: int, pool: int) -> None:
    maps = some_maps(2, tokens)
    pooled = pool_maps(maps, pool)
    side = -(-tokens // pool)
    assert pooled.shape == (2, side, side)
    for i in range(side):
        for j in range(side):
            block = maps[:, i * pool : (i + 1) * pool, j * pool : (j + 1) * pool]
            np.testing.assert_array_equal(pooled[:, i, j], block.max(axis=(1, 2)))
    header, decoded = decode_maps(encode_maps(maps, pool=pool))
    assert (header.side, header.tokens, header.pool) == (side, tokens, pool)
    np.testing.assert_allclose(decoded, pooled, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_with_a_weight_that_is_no_number_is_none(bad: float) -> None:
    maps = some_maps(1, 7)
    maps[0, 6, 3] = bad
    expected = np.zeros((3, 3), bool)
    expected[2, 1] = True
    np.testing.assert_array_equal(np.isnan(decode_maps(encode_maps(maps, pool=3))[1][0]), expected)


@pytest.mark.parametrize(("n_maps", "tokens"), [(1, 1), (36, 64), (144, 1024), (10_000, 7)])
def test_the_pool_is_the_smallest_that_fits(n_maps: int, tokens: int) -> None:
    def values(pool: int) -> int:
        side = -(-tokens // pool)
        return n_maps * side * (side + 1) // 2

    pool = smallest_pool(n_maps, tokens, max_values=50_000)
    assert values(pool) <= 50_000
    assert pool == 1 or values(pool - 1) > 50_000


def test_maps_that_are_too_many_for_a_file_are_not_encoded() -> None:
    vast = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (MAX_VALUES + 1, 1, 1), (0, 0, 0))
    with pytest.raises(UserError, match="fewer tokens"):
        encode_maps(vast)


# Hostile bytes


def with_header(content: bytes, **changes: int | bytes) -> bytes:
    names = ("magic", "version", "pool", "n_maps", "side", "tokens")
    fields = dict(zip(names, struct.unpack_from("<8sHHIII", content), strict=True)) | changes
    return struct.pack("<8sHHIII", *fields.values()) + content[24:]


GOOD = encode_maps(some_maps(5, 7))
BOMB = GOOD[:24] + zlib.compress(bytes(2**28), 9)
BAD = {
    "nothing": b"",
    "a cut header": GOOD[:20],
    "a cut body": GOOD[:-9],
    "a cut checksum": GOOD[:-1],
    "more after it": GOOD + b"\0",
    "a flipped bit": GOOD[:60] + bytes([GOOD[60] ^ 1]) + GOOD[61:],
    "another file": b"\x89PNG\r\n\x1a\n" + GOOD[8:],
    "a newer version": with_header(GOOD, version=2),
    "no version": with_header(GOOD, version=0),
    "no pool": with_header(GOOD, pool=0),
    "no maps": with_header(GOOD, n_maps=0),
    "no tokens": with_header(GOOD, tokens=0, side=0),
    "a side that does not fit": with_header(GOOD, side=8),
    "fewer maps": with_header(GOOD, n_maps=4),
    "more maps": with_header(GOOD, n_maps=6),
    "far too many maps": with_header(GOOD, n_maps=2**32 - 1),
    "far too many tokens": with_header(GOOD, tokens=2**32 - 1, side=2**32 - 1),
    "a bomb": BOMB,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bytes_that_are_no_maps_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"holds no|has format 2|impossible shape|claims to hold|is damaged"):
        decode_maps(content)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_bomb_is_refused_without_unpacking_it() -> None:
    before = peak()
    with pytest.raises(ValueError, match="is damaged"):
        decode_maps(BOMB)
    assert peak() - before < 2**25


@given(st.binary(max_size=60), st.integers(0, 60))
def test_no_bytes_do_anything_else(garbage: bytes, start: int) -> None:
    for content in (garbage, GOOD[:start] + garbage):
        try:
            decode_maps(content)
        except ValueError:
            continue


# The folder


def some_probe(n_layers: int = 2, n_heads: int = 3, tokens: int = 5) -> StoredProbe:
    return StoredProbe.model_validate(
        {
            "n_layers": n_layers,
            "n_heads": n_heads,
            "sentence": list(range(tokens)),
            "tokens": [{"text": "<|\0\u2028é", "bytes": None, "special": False}] * (tokens - 2)
            + [{"text": "\\xed", "bytes": "ed", "special": False}, {"text": "e", "bytes": None, "special": True}],
            "groups": [[0, 2, "나"]],
            "repeats": [[1, 2, 1, 2], [3, 3, 3, 3]],
            "periods": [2, 1],
            "text": [[4, 4]],
            "baseline": {"entropy": 1.0, "distance": 0.5},
        }
    )


def a_line(step: int, n_layers: int = 2, n_heads: int = 3) -> dict[str, object]:
    table = [[0.25, None, 0.123456789][:n_heads]] * n_layers
    return {
        "format": 1,
        "step": step,
        "scores": {"entropy": table},
        "interval": {"entropy": [[[0.2, 0.3], [None, None], [0.1, 0.2]][:n_heads]] * n_layers},
        "badges": [[["induction"], [], ["sink", "dead"]][:n_heads]] * n_layers,
        "copy_gap": 1.5,
        "in_context": None,
        "seconds": 0.05,
    }


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A record of steps 0, 7 and STEP, with scores of step 9 as well."""
    record = Record(tmp_path / "inspection")
    record.write_probe(some_probe())
    for step in (0, 7, 9, STEP):
        record.write_line(a_line(step))
        if step != 9:
            record.write_maps(step, some_maps(6, 5, seed=step).reshape(2, 3, 5, 5))
    return record


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        act()
    return str(caught.value)


def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert record.read_probe() == some_probe()
    assert record.map_steps() == [0, 7, STEP]
    assert [line.step for line in record.reports()] == [0, 7, 9, STEP]
    assert [line.step for line in record.reports({7, 9})] == [7, 9]
    np.testing.assert_allclose(decode_maps(record.read_maps(7))[1], some_maps(6, 5, seed=7), atol=1e-5)
    assert {path.relative_to(record.path).as_posix() for path in record.path.rglob("*.*")} == {
        "probe.json",
        "scores.jsonl",
        "maps/step_00000000.bin",
        "maps/step_00000007.bin",
        "maps/step_00000500.bin",
    }


def test_the_probe_of_a_record_is_what_is_measured_on(record: Record) -> None:
    probe = record.read_probe().probe()
    assert torch.equal(probe.sentence, torch.arange(5))
    assert torch.equal(probe.repeats, torch.tensor([[1, 2, 1, 2], [3, 3, 3, 3]]))
    assert (probe.periods, probe.text.tolist()) == ((2, 1), [[4, 4]])


def test_a_view_is_what_the_page_is_promised(record: Record) -> None:
    view = record.view("my run")
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert set(view) == {
        *("name", "n_layers", "n_heads", "tokens", "groups", "prompt_length", "predictions", "baseline", "frames")
    }
    assert (view["name"], view["n_layers"], view["n_heads"]) == ("my run", 2, 3)
    assert view["tokens"][3] == {"text": "\\xed", "bytes": "ed", "special": False}  # type: ignore[index]
    assert view["groups"] == [[0, 2, "나"]]
    assert (view["prompt_length"], view["predictions"]) == (None, None)
    frames = view["frames"]
    assert isinstance(frames, list)
    assert [frame["step"] for frame in frames] == [0, 7, STEP]
    assert base64.b64decode(frames[1]["maps"]) == record.map_file(7).read_bytes()
    assert frames[1]["detail"] is None
    assert frames[1]["report"] == a_line(7) | {"scores": {"entropy": [[0.25, None, 0.123457]] * 2}}


def test_a_view_without_maps_has_the_same_frames(record: Record) -> None:
    full, bare = record.view("run"), record.view("run", with_maps=False)
    for frame in full["frames"]:  # type: ignore[attr-defined]
        frame["maps"] = None
    assert bare == full


def test_a_view_of_some_steps_has_those_frames(record: Record) -> None:
    frames = record.view("run", steps=[0, STEP])["frames"]
    assert frames == [frame for frame in record.view("run")["frames"] if frame["step"] != 7]  # type: ignore[attr-defined]


def test_a_frame_without_scores_has_no_report(record: Record) -> None:
    record.scores_file.unlink()
    assert [frame["report"] for frame in record.view("run")["frames"]] == [None] * 3  # type: ignore[attr-defined]


def test_reading_needs_no_torch(record: Record) -> None:
    program = (
        "import sys; from pathlib import Path; from transformer.inspection.record import Record; "
        f"assert Record(Path({str(record.path)!r})).view('run')['frames']; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_a_large_model_is_pooled_to_a_bounded_size(record: Record) -> None:
    maps = np.ones((4, 5, 400, 400), np.float32)
    record.write_maps(3, maps)
    header, _ = decode_maps(record.map_file(3).read_bytes())
    assert (header.pool, header.tokens, header.n_maps) == (2, 400, 20)
    assert header.n_values <= MAX_RECORDED_WEIGHTS


# After a kill


@pytest.mark.parametrize("cut", [1, 2, 50, 10_000])
def test_a_last_line_that_is_cut_short_is_ignored(record: Record, cut: int) -> None:
    content = record.scores_file.read_bytes()
    last = content.splitlines(keepends=True)[-1]
    record.scores_file.write_bytes(content[: -min(cut, len(last))])
    assert [line.step for line in record.reports()] == [0, 7, 9]
    assert len(record.view("run")["frames"]) == 3  # type: ignore[arg-type]
    record.discard_after(STEP)
    record.write_line(a_line(STEP))
    assert [line.step for line in record.reports()] == [0, 7, 9, STEP]


@pytest.mark.parametrize("step", [-1, 0, 6, 7, 9, 499, STEP])
def test_later_steps_are_dropped(record: Record, step: int) -> None:
    (record.path / "maps" / ".step_00000007.bin.123.tmp").write_bytes(b"half")
    record.discard_after(step)
    assert record.map_steps() == [kept for kept in (0, 7, STEP) if kept <= step]
    assert [line.step for line in record.reports()] == [kept for kept in (0, 7, 9, STEP) if kept <= step]
    assert not list(record.path.rglob("*.tmp"))
    assert record.read_probe() == some_probe()


def test_a_record_that_is_not_there_has_nothing_to_drop(tmp_path: Path) -> None:
    Record(tmp_path / "inspection").discard_after(3)
    assert list(tmp_path.iterdir()) == []


# Damaged, foreign and newer files


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_file_of_maps_that_is_none_is_named_and_may_be_removed(record: Record, content: bytes) -> None:
    record.map_file(7).write_bytes(content)
    assert refusal(lambda: record.read_maps(7)).startswith(f"{record.map_file(7)}: ")
    remedy = "upgrade attn" if content == BAD["a newer version"] else "remove the file"
    assert remedy in refusal(lambda: record.view("run"))
    record.map_file(7).unlink()
    assert len(record.view("run")["frames"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(5, 5), (7, 5), (6, 4)])
def test_maps_of_another_run_are_refused(record: Record, shape: tuple[int, int]) -> None:
    record.map_file(7).write_bytes(encode_maps(some_maps(*shape)))
    assert "belongs to another run" in refusal(lambda: record.read_maps(7))


def test_maps_that_are_missing_are_named(record: Record) -> None:
    assert refusal(lambda: record.read_maps(8)).startswith(f"{record.map_file(8)}: cannot be read")


@pytest.mark.parametrize(
    "name",
    [
        "step_7.bin",
        "step_x.bin",
        "step_000000003.bin",
        "step_0000000\u0663.bin",
        "step_00000003.bin.tmp",
        ".step_00000003.bin",
    ],
)
def test_other_names_are_no_maps(record: Record, name: str) -> None:
    (record.path / "maps" / name).write_bytes(b"")
    assert record.map_steps() == [0, 7, STEP]


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": []},
        {"sentence": []},
        {"sentence": "abc"},
        {"n_layers": None},
        {"tokens": [{"text": "a"}] * 5},
        {"groups": [[1, 2]]},
        {"groups": [[4, 6, "나"]]},
        {"groups": [[-1, 2, "나"]]},
        {"periods": [1]},
        {"periods": [0, 1]},
        {"periods": [2, 10**30]},
        {"repeats": [[1, 2], [1]]},
        {"repeats": [], "periods": []},
        {"repeats": [[], []]},
        {"text": []},
        {"text": [[], []]},
        {"baseline": {"entropy": "much"}},
        {"baseline": {"entropy": float("nan")}},
    ],
)
def test_a_probe_that_is_damaged_is_named_and_may_be_removed(record: Record, change: dict[str, object]) -> None:
    record.probe_file.write_text(json.dumps(json.loads(record.probe_file.read_bytes()) | change), encoding="utf-8")
    message = refusal(record.read_probe)
    assert message.startswith(f"{record.probe_file}: damaged: ")
    assert f"remove the folder {record.path}" in message


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"step": 7}'])
def test_a_probe_that_is_none_is_named(record: Record, content: bytes) -> None:
    record.probe_file.write_bytes(content)
    message = refusal(record.read_probe)
    assert message.startswith(f"{record.probe_file}: ")
    assert f"remove the folder {record.path}" in message


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"null", b"[" * 100_000, b"\xff", b'{"step": 7}', b'{"step": "7", "scores": {}}', b'{"step": 1e999}'],
)
def test_a_line_that_is_damaged_is_named_by_its_number(record: Record, line: bytes) -> None:
    lines = record.scores_file.read_bytes().splitlines(keepends=True)
    record.scores_file.write_bytes(lines[0] + line + b"\n" + b"".join(lines[2:]))
    assert refusal(lambda: record.view("run")).startswith(f"{record.scores_file}: line 2 is damaged: ")
    record.discard_after(STEP)
    if line != b'{"step": 7}':  # a step, though not much of one
        assert [report.step for report in record.reports()] == [0, 9, STEP]


@pytest.mark.parametrize(
    "change",
    [
        {"copy_gap": float("nan")},
        {"seconds": float("inf")},
        {"scores": {"entropy": [[float("nan")] * 3] * 2}},
        {"scores": {"entropy": [[0.5] * 3]}},
        {"interval": {"entropy": [[[0.2, 0.3]] * 2] * 2}},
        {"badges": []},
    ],
)
def test_a_line_with_what_no_page_can_show_is_damaged(record: Record, change: dict[str, object]) -> None:
    lines = record.scores_file.read_bytes().splitlines(keepends=True)
    record.scores_file.write_bytes(lines[0] + json.dumps(a_line(7) | change).encode() + b"\n" + b"".join(lines[2:]))
    assert refusal(lambda: record.view("run")).startswith(f"{record.scores_file}: line 2 is damaged: ")


def test_scores_of_another_model_are_refused(record: Record) -> None:
    record.write_line(a_line(STEP, n_layers=3))
    message = refusal(lambda: record.view("run"))
    assert message.startswith(f"{record.scores_file}: belongs to another run than {record.probe_file}")


@pytest.mark.skipif(sys.platform == "win32", reason="makes a FIFO")
@pytest.mark.parametrize("file", ["probe.json", "scores.jsonl", "maps/step_00000007.bin"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_named_and_never_read(record: Record, file: str, make: Callable[[Path], None]) -> None:
    path = record.path / file
    path.unlink()
    make(path)
    assert refusal(lambda: record.view("run")).startswith(f"{path}: is no file")
    if file == "scores.jsonl":
        assert refusal(lambda: record.discard_after(STEP)).startswith(f"{path}: is no file")


@pytest.mark.parametrize("file", ["probe.json", "scores.jsonl"])
def test_a_newer_format_is_refused_with_both_numbers(record: Record, file: str) -> None:
    path = record.path / file
    path.write_text(
        path.read_text(encoding="utf-8").replace('"format":1', '"format": 2').replace('"format": 1', '"format": 2')
    )
    with pytest.raises(NewerFormatError, match="has format 2, and this version reads up to 1"):
        record.view("run")
