"""Words and bars for the person at the terminal: all of it on stderr, since stdout carries data."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE = 0.5
"""Seconds of waiting without a bar."""


def say(text: str = "") -> None:
    """Write a line to stderr, above a bar if there is one. Where nobody reads it any more, work goes on unheard."""
    with suppress(OSError):
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)
            sys.stderr.flush()
        else:
            print(text, file=sys.stderr)  # noqa: T201


def is_terminal() -> bool:
    """Whether stderr is read by a person who sees bars move."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def styled(text: str, code: str) -> str:
    """Text in an ANSI style, on a terminal that wants colours."""
    return f"\033[{code}m{text}\033[0m" if is_terminal() and "NO_COLOR" not in os.environ else text


def bold(text: str) -> str:
    """What the eye should find first."""
    return styled(text, "1")


def dim(text: str) -> str:
    """What may be overlooked."""
    return styled(text, "2")


@contextmanager
def character_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over the characters of a text: gives a function of (done, total). It appears where a person waits."""
    from tqdm import tqdm

    started, bar = time.monotonic(), None

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and is_terminal() and time.monotonic() - started > PATIENCE:
            bar = tqdm(desc=label, total=total, unit=" characters", unit_scale=True, leave=False, dynamic_ncols=True)
        if bar is not None:
            bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def printable(text: str) -> str:
    """Text without what a terminal would obey: control characters but newline and tab become escapes."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def duration(seconds: float) -> str:
    """`1:05`, `2:03:04`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def count(number: float) -> str:
    """`950`, `12.3k`, `4.56M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:  # what rounds to a thousand is 1 of the next unit
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"
