"""Event files for TensorBoard: written without TensorFlow, whole after a kill, never a step twice."""

import io
import os
import struct
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from PIL import Image
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

EVENT_FILE_PREFIX = "events.out.tfevents."
FILE_VERSION = "brain.Event:2"
RGB_CHANNELS = 3

# A record is the length of its data, that length's checksum, the data, the data's checksum.
RECORD_HEADER = struct.Struct("<QI")
RECORD_FOOTER = struct.Struct("<I")

# Line ends and tabs as well: Markdown rewrites white space and reads the start of a line.
MARKUP = {ord(character): f"&#{ord(character)};" for character in "&<>\t\n\r"}

HyperparameterValue = bool | int | float | str | None


class TensorBoardWriter:
    """One event file in a run's folder; each call hands its event to the system, so a kill loses none."""

    def __init__(self, folder: Path) -> None:
        """Start a new event file in `folder`, which is made where missing."""
        folder.mkdir(parents=True, exist_ok=True)
        # Loaders read a folder's files in the order of their names, so the time comes first.
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"{EVENT_FILE_PREFIX}{seconds:010d}.{nanoseconds:09d}.{os.getpid()}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._write(event_pb2.Event(file_version=FILE_VERSION))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write one number per tag, as 32-bit floats; NaN and infinity are shown as such."""
        self._summary(step, [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])

    def text(self, tag: str, step: int, text: str) -> None:
        """Write text that is shown character for character, never as Markdown or HTML.

        Control characters and lone surrogates, which a page cannot show, become Python's escapes (`\\x00`).
        """
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[_literal_html(text).encode("utf-8")])
        metadata = text_metadata.create_summary_metadata(display_name="", description="")
        self._summary(step, [summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])

    def image(self, tag: str, step: int, pixels: np.ndarray) -> None:
        """Write a picture as PNG: (height, width, 3) uint8."""
        height, width, _ = pixels.shape
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, "PNG")
        image = summary_pb2.Summary.Image(
            height=height, width=width, colorspace=RGB_CHANNELS, encoded_image_string=png.getvalue()
        )
        self._summary(step, [summary_pb2.Summary.Value(tag=tag, image=image)])

    def hyperparameters(self, values: Mapping[str, HyperparameterValue], metrics: Sequence[str]) -> None:
        """Show settings, and the tags of scalars that judge them, in the HParams tab under this run's name.

        TensorBoard fails on a setting that is a number in one run and a word in another. Hence None is an empty
        cell, and a boolean is YAML's word for it, as `auto` may stand there elsewhere. Numbers are 64-bit floats.
        """
        experiment = api_pb2.Experiment(
            hparam_infos=[api_pb2.HParamInfo(name=name, type=_setting_type(value)) for name, value in values.items()],
            metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metrics],
        )
        start = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
        for name, value in values.items():
            if isinstance(value, bool | str):
                start.hparams[name].string_value = _word(value)
            elif value is not None:
                start.hparams[name].number_value = value
        messages = {
            hparams_metadata.EXPERIMENT_TAG: plugin_data_pb2.HParamsPluginData(experiment=experiment),
            hparams_metadata.SESSION_START_INFO_TAG: plugin_data_pb2.HParamsPluginData(session_start_info=start),
        }
        self._summary(0, [_metadata_value(tag, message) for tag, message in messages.items()])

    def flush(self) -> None:
        """Put all events on the disk, where they outlive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and end the file; to close twice is harmless."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _summary(self, step: int, values: Sequence[summary_pb2.Summary.Value]) -> None:
        self._write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=values)))

    def _write(self, event: event_pb2.Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
        self._file.flush()


def image_steps(max_steps: int, count: int) -> tuple[int, ...]:
    """At most `count` steps of 0 … max_steps, both ends among them, evenly spaced in log time.

    A count of 1 gives the last step alone. Where the even steps would be the same whole number, the next free
    one is taken, so there are fewer than `count` only where the run has fewer.
    """
    count = min(count, max_steps + 1)
    if count <= 1:
        return (max_steps,) * count
    return tuple(max(i, round((max_steps + 1) ** (i / (count - 1))) - 1) for i in range(count))


def picture_steps(folder: Path) -> set[int]:
    """The steps of which a run's event files hold pictures."""
    files = folder.glob(f"{EVENT_FILE_PREFIX}*")
    events = (event_pb2.Event.FromString(event) for path in files for _, event in _events(path.read_bytes()))
    return {event.step for event in events if any(value.HasField("image") for value in event.summary.value)}


def discard_after(folder: Path, step: int) -> None:
    """Drop every event of a later step from a run's event files, and a last record that a kill cut short.

    A run that resumes from a checkpoint of `step` calls it first. A file that changes is written anew and renamed.
    """
    for path in sorted(folder.glob(f"{EVENT_FILE_PREFIX}*")):
        content = path.read_bytes()
        kept = b"".join(record for record, event in _events(content) if event_pb2.Event.FromString(event).step <= step)
        if kept != content:
            _replace(path, kept)


def _events(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every whole record of an event file and the event in it, up to the first damage, where loaders stop too."""
    start = 0
    while len(content) - start >= RECORD_HEADER.size:
        length, header_checksum = RECORD_HEADER.unpack_from(content, start)
        data = start + RECORD_HEADER.size
        end = data + length + RECORD_FOOTER.size
        if header_checksum != masked_crc32c(content[start : start + 8]) or end > len(content):
            return
        event = content[data : data + length]
        if RECORD_FOOTER.unpack_from(content, data + length) != (masked_crc32c(event),):
            return
        yield content[start:end], event
        start = end


def _replace(path: Path, content: bytes) -> None:
    # Loaders open whatever has "tfevents" in its name; the temporary file must not.
    temporary = path.with_name("events.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _literal_html(text: str) -> str:
    """Markdown that TensorBoard renders as `text` itself: one line of preformatted HTML.

    `<code>` stands between because HTML drops a line end that follows `<pre>`.
    """
    shown = "".join(_escape(character) for character in text)
    return f"<pre><code>{shown.translate(MARKUP)}</code></pre>"


def _escape(character: str) -> str:
    unshown = unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n\r"
    return character.encode("unicode_escape").decode("ascii") if unshown else character


def _word(value: bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _setting_type(value: HyperparameterValue) -> int:
    kind: int = api_pb2.DATA_TYPE_FLOAT64
    if value is None:
        kind = api_pb2.DATA_TYPE_UNSET  # any type may stand there in another run
    elif isinstance(value, bool | str):
        kind = api_pb2.DATA_TYPE_STRING
    return kind


def _metadata_value(tag: str, message: plugin_data_pb2.HParamsPluginData) -> summary_pb2.Summary.Value:
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=hparams_metadata.create_summary_metadata(message),
        tensor=hparams_metadata.NULL_TENSOR,
    )
