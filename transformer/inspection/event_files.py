"""Event files of TensorBoard on disk: reading them, and cutting them back to a step."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
from tensorboard.compat.proto import event_pb2

EVENT_FILE_PREFIX = "events.out.tfevents."

# A record is the length of its data, that length's checksum, the data, the data's checksum.
RECORD_HEADER = struct.Struct("<QI")
RECORD_FOOTER = struct.Struct("<I")
RECORD_BYTES = RECORD_HEADER.size + RECORD_FOOTER.size
"""What a record takes beside its event."""
CHECKSUM_MASK = 0xA282EAD8


def record_of(event: bytes) -> bytes:
    """A serialized event as it stands in an event file."""
    length = struct.pack("<Q", len(event))
    return RECORD_HEADER.pack(len(event), _checksum(length)) + event + RECORD_FOOTER.pack(_checksum(event))


def picture_steps(folder: Path) -> set[int]:
    """The steps of which a run's event files hold pictures."""
    events = read_events(folder)
    return {event.step for _, event in events if any(value.HasField("image") for value in event.summary.value)}


def read_events(folder: Path) -> Iterator[tuple[int, event_pb2.Event]]:
    """Every event of a run, in the order in which it was written, with the bytes that it takes."""
    for path in event_files(folder):
        for record, event in _records(path.read_bytes()):
            yield len(record), event_pb2.Event.FromString(event)


def event_files(folder: Path) -> list[Path]:
    """A run's event files, oldest first."""
    return sorted(folder.glob(f"{EVENT_FILE_PREFIX}*"))


def discard_after(folder: Path, step: int) -> None:
    """Drop every event of a later step from a run's event files, and a last record that a kill cut short.

    A run that resumes from a checkpoint of `step` calls it first. A file that changes is written anew and renamed.
    """
    for path in event_files(folder):
        content = path.read_bytes()
        kept = b"".join(record for record, event in _records(content) if event_pb2.Event.FromString(event).step <= step)
        if kept != content:
            _replace(path, kept)


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every whole record of an event file and the event in it, up to the first damage, where loaders stop too."""
    start = 0
    while len(content) - start >= RECORD_HEADER.size:
        length, header_checksum = RECORD_HEADER.unpack_from(content, start)
        data = start + RECORD_HEADER.size
        end = data + length + RECORD_FOOTER.size
        if header_checksum != _checksum(content[start : start + 8]) or end > len(content):
            return
        event = content[data : data + length]
        if RECORD_FOOTER.unpack_from(content, data + length) != (_checksum(event),):
            return
        yield content[start:end], event
        start = end


def _checksum(data: bytes) -> int:
    """CRC-32C, masked: a checksum of data that holds checksums itself. TensorBoard computes it in Python, slowly."""
    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + CHECKSUM_MASK) % 2**32


def _replace(path: Path, content: bytes) -> None:
    # Loaders open whatever has "tfevents" in its name; the temporary file must not.
    temporary = path.with_name("events.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
