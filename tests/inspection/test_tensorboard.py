"""Event files, judged by TensorBoard's own readers and renderers."""

import html.parser
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata as hparams_metadata

from transformer.inspection.event_files import discard_after
from transformer.inspection.tensorboard import TensorBoardWriter

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of the HTML library inside TensorBoard
    from tensorboard.backend.event_processing.data_ingester import DEFAULT_TENSOR_SIZE_GUIDANCE
    from tensorboard.plugin_util import markdown_to_safe_html, safe_html


def stock_accumulator(folder: Path) -> EventAccumulator:
    """What TensorBoard without options keeps of a folder."""
    accumulator = EventAccumulator(str(folder), tensor_size_guidance=DEFAULT_TENSOR_SIZE_GUIDANCE)
    return accumulator.Reload()


def steps_of(folder: Path, tag: str) -> list[int]:
    return [event.step for event in stock_accumulator(folder).Tensors(tag)]


def event_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


class _PreformattedText(html.parser.HTMLParser):
    """The characters of a page, and which tags hold them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.tags = "", []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def text_on_the_page(page: str) -> str:
    # A browser turns line ends of the source into \n before it reads entities.
    parser = _PreformattedText()
    parser.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    parser.close()
    assert parser.tags == ["pre", "code"]
    return parser.text


def written_text(folder: Path, text: str) -> bytes:
    with TensorBoardWriter(folder) as board:
        board.text("samples", 3, text)
    (event,) = stock_accumulator(folder).Tensors("samples")
    return event.tensor_proto.string_val[0]


HOSTILE_TEXTS = [
    "",
    " ",
    "\n",
    "\n\n\nafter blank lines\n\n\n",
    "tab\tat the end\t\n\t\tindented",
    "trailing spaces   \n   \n   leading",
    "\r\nCRLF\r\n\rlone\r",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</code></pre><b>out</b>",
    "<!-- comment --><?php ?><![CDATA[ x ]]>",
    "&amp; &lt; &#65; &#x41; &nbsp &",
    "`code` ```\nfence\n``` ~~~\nfence\n~~~",
    "*a* _b_ **c** __d__ \\* \\_ \\\\",
    "# title\n> quote\n- item\n1. one\n---\n===\n    code",
    "[link](javascript:alert(1)) ![image](x) [id]: http://x\n[id] <http://x>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "wzxhzdk:0 klzzwxh:0000 {{ mustache }} [[polymer]]",
    "é ß 漢字 😀 👩‍👩‍👧 \u202eright-to-left\u2069 \u2028 \u2029 \ufeff \ufffd \xa0 \xad",
    "\"quotes\" and 'quotes'",
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
@pytest.mark.parametrize("render", [markdown_to_safe_html, safe_html], ids=["markdown on", "markdown off"])
def test_text_is_shown_character_for_character(tmp_path, text, render):
    assert text_on_the_page(render(written_text(tmp_path, text))) == text


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0xD800, 0xDFFF])
def test_a_character_that_no_page_can_show_is_shown_as_an_escape(tmp_path, code):
    text = f"before {chr(code)} after"
    escape = chr(code) if chr(code) in "\t\n\r" else chr(code).encode("unicode_escape").decode()
    assert text_on_the_page(markdown_to_safe_html(written_text(tmp_path, text))) == f"before {escape} after"


def test_every_other_character_of_the_basic_plane_survives(tmp_path):
    text = "".join(c for c in map(chr, range(0x20, 0xFFFE)) if unicodedata.category(c) not in ("Cc", "Cs"))
    assert text_on_the_page(markdown_to_safe_html(written_text(tmp_path, text))) == text


def test_a_long_text_survives(tmp_path):
    text = "A line of *prose* with <tags> & tabs\t.\n" * 2_003
    assert text_on_the_page(markdown_to_safe_html(written_text(tmp_path, text))) == text


def test_stock_tensorboard_keeps_every_image_and_the_first(tmp_path):
    steps = range(0, 5_000, 499)[:10]
    with TensorBoardWriter(tmp_path) as board:
        for step in steps:
            board.pictures(step, {"attention/layer_0": Image.new("L", (11, 7), step % 251)})
    assert len(steps) == 10
    assert steps_of(tmp_path, "attention/layer_0") == list(steps)


@pytest.mark.parametrize("mode", ["P", "RGB"])
def test_an_image_is_read_back_pixel_for_pixel_before_the_writer_is_closed(tmp_path, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)
    picture = Image.fromarray(pixels)
    if mode == "P":
        indices, palette = pixels[..., 0] % 211, pixels.reshape(-1, 3)[:211]
        picture, pixels = Image.fromarray(indices), palette[indices]
        picture.putpalette(palette.tobytes())
    with TensorBoardWriter(tmp_path) as board:
        board.pictures(5, {"picture": picture})
        (event,) = stock_accumulator(tmp_path).Tensors("picture")
    *size, png = event.tensor_proto.string_val
    (tmp_path / "picture.png").write_bytes(png)
    assert list(map(int, size)) == [17, 13]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "picture.png").convert("RGB")), pixels)


def test_scalars_are_on_disk_after_each_call(tmp_path):
    with TensorBoardWriter(tmp_path) as board:
        board.scalars(0, {"loss/train": 2.5, "loss/validation": 3.5})
        assert steps_of(tmp_path, "loss/train") == steps_of(tmp_path, "loss/validation") == [0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e-300, 2**70])
def test_an_extreme_scalar_is_written_as_the_nearest_32_bit_float(tmp_path, value):
    with TensorBoardWriter(tmp_path) as board:
        board.scalars(1, {"loss/train": value})
    (event,) = stock_accumulator(tmp_path).Tensors("loss/train")
    with np.errstate(over="ignore"):
        assert np.array_equal(event.tensor_proto.float_val[0], np.float32(value), equal_nan=True)


def test_a_thousand_lines_of_scalars_stay_small(tmp_path):
    with TensorBoardWriter(tmp_path) as board:
        for step in range(1_000):
            board.scalars(step, {"loss/train": 1.0, "optimizer/learning_rate": 1.0})
    assert event_file(tmp_path).stat().st_size < 100_000


def test_hyperparameters_belong_to_the_run_itself(tmp_path):
    values = {"compile": True, "width": 128, "rate": 4e-3, "optimizer": "muon", "window": None}
    with TensorBoardWriter(tmp_path / "my run") as board:
        board.hyperparameters(values, ["loss/validation"])

    content = stock_accumulator(tmp_path / "my run").PluginTagToContent("hparams")
    session = hparams_metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    experiment = hparams_metadata.parse_experiment_plugin_data(content["_hparams_/experiment"])

    assert [path.name for path in tmp_path.iterdir()] == ["my run"]
    assert event_file(tmp_path / "my run").is_file()
    assert {name: value.WhichOneof("kind") for name, value in session.hparams.items()} == {
        "compile": "string_value", "width": "number_value", "rate": "number_value", "optimizer": "string_value",
    }  # fmt: skip
    assert session.hparams["compile"].string_value == "true"
    assert [info.name for info in experiment.hparam_infos] == list(values)
    assert [info.name.tag for info in experiment.metric_infos] == ["loss/validation"]


def test_two_writers_of_one_run_never_share_a_file(tmp_path):
    with TensorBoardWriter(tmp_path), TensorBoardWriter(tmp_path):
        assert len(list(tmp_path.iterdir())) == 2


def write_steps(folder: Path, steps: range) -> None:
    with TensorBoardWriter(folder) as board:
        for step in steps:
            board.scalars(step, {"loss/train": float(step)})


def test_a_resumed_run_shows_no_step_twice(tmp_path):
    write_steps(tmp_path, range(0, 13))
    discard_after(tmp_path, 7)
    write_steps(tmp_path, range(8, 11))
    discard_after(tmp_path, 9)
    write_steps(tmp_path, range(10, 19))

    assert steps_of(tmp_path, "loss/train") == list(range(19))
    raw = [event for path in sorted(tmp_path.iterdir()) for event in LegacyEventFileLoader(str(path)).Load()]
    assert [event.step for event in raw if event.HasField("summary")] == list(range(19))
    assert [event.file_version for event in raw if event.HasField("file_version")] == ["brain.Event:2"] * 3


def test_what_a_kill_cut_short_is_dropped_wherever_it_was_cut(tmp_path):
    write_steps(tmp_path, range(5))
    path = event_file(tmp_path)
    whole = path.read_bytes()
    last = whole.rindex(b"loss/train")
    discard_after(tmp_path, 3)
    up_to_3 = path.read_bytes()
    for length in range(len(up_to_3), len(whole)):
        path.write_bytes(whole[:length])
        discard_after(tmp_path, 100)
        assert path.read_bytes() == up_to_3, length
    assert len(up_to_3) < last


@pytest.mark.parametrize("tail", [b"\0" * 37, b"\xff" * 37, b"x"])
def test_a_damaged_tail_is_dropped(tmp_path, tail):
    write_steps(tmp_path, range(5))
    path = event_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    discard_after(tmp_path, 4)
    assert path.read_bytes() == whole


def test_a_damaged_byte_ends_the_file_there(tmp_path):
    write_steps(tmp_path, range(5))
    path = event_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"loss/train")] ^= 1
    path.write_bytes(content)
    discard_after(tmp_path, 4)
    assert steps_of(tmp_path, "loss/train") == [0, 1, 2, 3]


def test_a_file_that_loses_nothing_is_not_written_again(tmp_path):
    write_steps(tmp_path, range(5))
    before = event_file(tmp_path).stat()
    discard_after(tmp_path, 4)
    after = event_file(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_text_images_and_settings_survive_the_rewriting(tmp_path):
    with TensorBoardWriter(tmp_path) as board:
        board.hyperparameters({"width": 3}, ["loss/train"])
        board.text("samples", 1, "kept")
        board.pictures(1, {"picture": Image.new("L", (3, 2))})
        board.text("samples", 2, "dropped")
    discard_after(tmp_path, 1)
    tags = stock_accumulator(tmp_path).Tags()["tensors"]
    assert {"samples", "picture", "_hparams_/session_start_info"} <= set(tags)
    assert steps_of(tmp_path, "samples") == [1]


def test_no_trace_of_the_rewriting_is_left_and_other_files_are_spared(tmp_path):
    write_steps(tmp_path, range(5))
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    discard_after(tmp_path, 0)
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_run_without_event_files_has_nothing_to_discard(tmp_path):
    discard_after(tmp_path, 3)
    discard_after(tmp_path / "missing", 3)
    assert list(tmp_path.iterdir()) == []


def test_importing_it_is_silent_and_loads_no_tensorflow_and_no_torch(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')", encoding="utf-8")
    code = (
        "import sys, pathlib; sys.path.append(sys.argv[1])\n"
        "from transformer.inspection.tensorboard import TensorBoardWriter\n"
        "board = TensorBoardWriter(pathlib.Path(sys.argv[1], 'run')); board.text('t', 0, 'x')\n"
        "board.hyperparameters({'a': 1}, []); board.close()\n"
        "assert not {'tensorflow', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
