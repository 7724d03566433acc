"""Files that are whole or absent, whenever a process is killed."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from transformer.errors import NewerFormatError, UserError

FORMAT = 1
"""Version of the JSON files of a run; a newer one is refused."""

Json = dict[str, object]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, flush it to disk and give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        flush_to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole, as UTF-8."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode("utf-8")))


def write_json(path: Path, value: Json) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Json:
    """Read a JSON object that this program wrote. Raises UserError where it is missing, damaged or newer."""
    refuse_special(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise UserError(f"{path}: not written by this program: it has no format number")
    if value["format"] > FORMAT:
        raise NewerFormatError(
            f"{path}: has format {value['format']}, and this version reads up to {FORMAT}; upgrade attn"
        )
    return value


def refuse_special(path: Path) -> None:
    """Raises UserError where a path is no ordinary file but there: a FIFO would be waited for, a device has no end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is no file")


def copy_file(source: Path, target: Path) -> None:
    """Copy a file whole."""
    write_atomically(target, lambda temporary: shutil.copyfile(source, temporary))


def flush_to_disk(path: Path) -> None:
    """Have the system write a file or folder to its disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
