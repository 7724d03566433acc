"""How much of a run its event files keep: at most MAX_BYTES, however long it trains and however much it logs.

Pictures, texts and scalars have rooms of their own, so that none of them takes another's. What is left of
MAX_BYTES is for the first event of a tag and for the last.
"""

import math
from collections import Counter
from collections.abc import Sequence

from transformer.inspection.config import MAX_IMAGES

MAX_BYTES = 25_000_000
PICTURE_BYTES = 18_000_000
TEXT_BYTES = 1_500_000
SCALAR_BYTES = 4_500_000

HALVINGS = 64
"""Parts of a room; where it is thinned out, each takes half as many of what is offered as the part before."""


class Room:
    """Room for texts or for scalars. From half of it on, fewer and fewer get in: every 2nd, every 4th …

    The last quarter is for what is important, which is thinned out there only.
    """

    def __init__(self, size: int) -> None:
        """`size` in bytes."""
        self.size, self.used = size, 0
        self._offered: Counter[object] = Counter()

    def admits(self, kind: object, size: int, *, important: bool = False) -> bool:
        """Whether the next event of a kind is to be written; the first always is."""
        number = self._offered[kind]
        self._offered[kind] += 1
        fits = self.used + size <= self.size * (1 if important else 0.75)
        return number == 0 or (fits and number % self._stride(important=important) == 0)

    def _stride(self, *, important: bool) -> int:
        beyond = self.used / self.size - (0.75 if important else 0.5)
        return int(2 ** max(0, math.ceil(beyond * HALVINGS)))


class PictureRoom:
    """Room for pictures, the same for each of the MAX_IMAGES steps at which they are drawn."""

    def __init__(self, size: int) -> None:
        """`size` in bytes."""
        self.size, self.used = size, 0
        self._steps: set[int] = set()
        self._free = 0

    def open(self, step: int) -> None:
        """Give a step, where it is new, its share. A run that is made longer may have more steps than shares."""
        if step not in self._steps:
            self._free = min(self.size // MAX_IMAGES, self.size - self.used)
            self._steps.add(step)

    def take(self, size: int) -> None:
        """Count a picture of the step that was opened last."""
        self.used += size
        self._free -= size

    def stride(self, sizes: Sequence[int]) -> int:
        """1 where all pictures of these sizes fit; 2 where every 2nd does; 4, 8 … beyond their number, where none."""
        stride = 1
        while stride <= len(sizes) and sum(sizes[::stride]) > self._free:
            stride *= 2
        return stride
