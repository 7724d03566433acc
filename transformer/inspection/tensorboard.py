"""Event files for TensorBoard: written without TensorFlow, whole after a kill, never a step twice."""

import io
import os
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from PIL import Image
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.text import metadata as text_metadata

from transformer.inspection.event_files import EVENT_FILE_PREFIX, RECORD_BYTES, read_events, record_of
from transformer.inspection.event_room import (
    MAX_BYTES,
    PICTURE_BYTES,
    SCALAR_BYTES,
    TEXT_BYTES,
    PictureRoom,
    Room,
)
from transformer.inspection.tensorboard_tags import description

FILE_VERSION = "brain.Event:2"
RGB_CHANNELS = 3

PNG_LEVEL = 3
"""Of zlib: half the time of its default, for a sixth more bytes."""

# Line ends and tabs as well: Markdown rewrites white space and reads the start of a line.
MARKUP = {ord(character): f"&#{ord(character)};" for character in "&<>\t\n\r"}

HyperparameterValue = bool | int | float | str | None


class TensorBoardWriter:
    """One event file in a run's folder; each call hands its event to the system, so a kill loses none.

    All files of the run together stay below MAX_BYTES. As they fill up, ever fewer pictures, texts and scalars
    are written; `say` is told so, once.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None] | None = None) -> None:
        """Start a new event file in `folder`, which is made where missing."""
        folder.mkdir(parents=True, exist_ok=True)
        self._say = say
        self._pictures, self._texts, self._scalars = PictureRoom(PICTURE_BYTES), Room(TEXT_BYTES), Room(SCALAR_BYTES)
        self._bytes = 0
        self._described: set[str] = set()
        self._left_out: dict[object, event_pb2.Event] = {}
        for size, event in read_events(folder):
            self._count(size, event)
        # Loaders read a folder's files in the order of their names, so the time comes first.
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"{EVENT_FILE_PREFIX}{seconds:010d}.{nanoseconds:09d}.{os.getpid()}"
        self._file = (folder / name).open("xb")
        self._write(event_pb2.Event(wall_time=time.time(), file_version=FILE_VERSION))

    def scalars(self, step: int, values: Mapping[str, float], *, important: bool = False) -> None:
        """Write one number per tag, as 32-bit floats; NaN and infinity are shown as such.

        What is important is the last to be left out when the files fill up.
        """
        event = _event(
            step,
            [
                summary_pb2.Summary.Value(tag=tag, simple_value=value, metadata=self._metadata(tag))
                for tag, value in values.items()
            ],
        )
        self._offer(event, self._scalars, tuple(values), important=important)

    def text(self, tag: str, step: int, text: str) -> None:
        """Write text that is shown character for character, never as Markdown or HTML.

        Control characters and lone surrogates, which a page cannot show, become Python's escapes (`\\x00`).
        """
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[_literal_html(text).encode("utf-8")])
        metadata = text_metadata.create_summary_metadata(display_name="", description=description(tag))
        event = _event(step, [summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
        self._offer(event, self._texts, tag)

    def pictures(self, step: int, pictures: Mapping[str, Image.Image]) -> None:
        """Write one picture per tag, as PNG; every 2nd, 4th … where room is scarce."""
        events = [_event(step, [self._picture(tag, picture)]) for tag, picture in pictures.items()]
        self._pictures.open(step)
        stride = self._pictures.stride([_size(event) for event in events])
        for event in events[::stride] if stride <= len(events) else []:
            self._write(event)
        if stride > 1:
            self._tell(step, "pictures")

    def layout(self, layout: layout_pb2.Layout) -> None:
        """Group this run's scalars into the charts of the tab Custom Scalars."""
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[layout.SerializeToString()])
        metadata = layout_metadata.create_summary_metadata()
        tag = layout_metadata.CONFIG_SUMMARY_TAG
        self._write(_event(0, [summary_pb2.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]))

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
        self._write(_event(0, [_metadata_value(tag, message) for tag, message in messages.items()]))

    def flush(self) -> None:
        """Put all events on the disk, where they outlive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what was left out last, so that charts reach the end; flush. To close twice is harmless."""
        if not self._file.closed:
            for event in self._left_out.values():
                if self._bytes + _size(event) <= MAX_BYTES:
                    self._write(event)
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _offer(self, event: event_pb2.Event, room: Room, kind: object, *, important: bool = False) -> None:
        """Write an event if the room for its kind admits it."""
        size = _size(event)
        if self._bytes + size <= MAX_BYTES and room.admits(kind, size, important=important):
            self._left_out.pop(kind, None)
            self._write(event)
        else:
            self._left_out[kind] = event
            self._tell(event.step, "samples" if room is self._texts else "points of the charts")

    def _tell(self, step: int, what: str) -> None:
        if self._say is not None:
            self._say(
                f"TensorBoard's files of this run stay below {MAX_BYTES // 10**6} MB: from step {step} on they leave "
                f"out some {what}; the run's other files keep everything"
            )
            self._say = None

    def _picture(self, tag: str, picture: Image.Image) -> summary_pb2.Summary.Value:
        image = summary_pb2.Summary.Image(
            height=picture.height, width=picture.width, colorspace=RGB_CHANNELS, encoded_image_string=_png(picture)
        )
        return summary_pb2.Summary.Value(tag=tag, image=image, metadata=self._metadata(tag))

    def _metadata(self, tag: str) -> summary_pb2.SummaryMetadata | None:
        """The description of a tag; TensorBoard keeps the first."""
        if tag in self._described:
            return None
        return summary_pb2.SummaryMetadata(summary_description=description(tag))

    def _write(self, event: event_pb2.Event) -> None:
        content = event.SerializeToString()
        self._file.write(record_of(content))
        self._file.flush()
        self._count(len(content) + RECORD_BYTES, event)

    def _count(self, size: int, event: event_pb2.Event) -> None:
        self._bytes += size
        values = event.summary.value
        self._described.update(value.tag for value in values)
        if any(value.HasField("image") for value in values):
            self._pictures.open(event.step)
            self._pictures.take(size)
        elif any(value.metadata.plugin_data.plugin_name == text_metadata.PLUGIN_NAME for value in values):
            self._texts.used += size
        else:
            self._scalars.used += size


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=PNG_LEVEL)
    return file.getvalue()


def _event(step: int, values: Sequence[summary_pb2.Summary.Value]) -> event_pb2.Event:
    return event_pb2.Event(step=step, wall_time=time.time(), summary=summary_pb2.Summary(value=values))


def _size(event: event_pb2.Event) -> int:
    """Bytes of an event in its file."""
    return int(event.ByteSize()) + RECORD_BYTES


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
