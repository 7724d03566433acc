"""How much memory a test's own process has taken at most, on Linux."""

import re
from pathlib import Path


def peak() -> int:
    """Bytes at the peak. getrusage would tell the peak of the process before `exec`, if that was larger."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])
