"""Stopping a run by Ctrl-C, by `kill`, or by closing its terminal."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
NOTICE = b"\nstopping after this step and saving; once more stops at once\n"


@dataclass
class Stop:
    """Which signal asked a run to stop, if one did."""

    signal: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first signal asks to stop after the step; the second one ends the process at once."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.signal = number
        restore()
        with suppress(OSError):  # the terminal may be gone; and sys.stderr may be in the middle of a line
            os.write(2, NOTICE)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()
