"""One score of every head drawn as a table, rows layers and columns heads, in the look of the attention maps.

The scale belongs to the score: a colour means the same number in every picture of it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from PIL import Image

from transformer.inspection.canvas import INK, MASKED, PAPER, blank, coloured, draw_scale, length, palette, place, write

TABLE_WIDTH, TABLE_HEIGHT = 640, 960
"""Size of a table whose cells are neither the smallest nor the largest."""
CELL_WIDTHS, CELL_HEIGHTS = (20, 96), (12, 60)
NUMBER_SIZES = (8, 22)
TEXT_SIZE, TITLE_SIZE = 18, 30
LINE = 24
CAPTION_WIDTH = 620
LUMA, DARK = (0.299, 0.587, 0.114), 140
UNKNOWN = "-"


@dataclass(frozen=True)
class Scale:
    """Colours from `low` to `high`: evenly, or evenly in log(1 + value / unit) where a unit is given."""

    low: float
    high: float
    ticks: tuple[float, ...]
    unit: float | None = None

    def position(self, values: np.ndarray) -> np.ndarray:
        """Where numbers stand in the scale, in [0, 1]; what is beyond its ends stands at them."""
        inside = values.clip(self.low, self.high)
        if self.unit is None:
            return np.asarray((inside - self.low) / (self.high - self.low))
        return np.asarray(np.log1p(inside / self.unit) / math.log1p(self.high / self.unit))


SHARE = Scale(0, 1, (0, 0.25, 0.5, 0.75, 1))

SCALES: Mapping[str, Scale] = {
    "entropy": SHARE,
    "distance": SHARE,
    "previous_token": SHARE,
    "current_token": SHARE,
    "first_token": SHARE,
    "duplicate_token": SHARE,
    "induction": SHARE,
    "copying": Scale(-1, 1, (-1, -0.5, 0, 0.5, 1)),
    "max_logit": Scale(0, 100, (0, 1, 10, 100), unit=1),
    "knockout": Scale(0, 1, (0, 0.01, 0.1, 1), unit=0.01),
}

CAPTIONS: Mapping[str, str] = {
    "entropy": "how widely attention is spread: 0 on one token, 1 evenly",
    "distance": "how far back it looks: 0 at itself, 1 at the first token",
    "previous_token": "weight on the token just before",
    "current_token": "weight on the token itself",
    "first_token": "weight on the first token",
    "duplicate_token": "weight on earlier copies of the token",
    "induction": "weight on what followed earlier copies of the token",
    "copying": "whether what it reads makes the same token likelier (1) or less likely (-1)",
    "max_logit": "largest logit before softmax",
    "knockout": "how much the loss grows, in nats, when the head is switched off",
}


def draw_score(name: str, values: np.ndarray, *, step: int, baseline: float | None) -> Image.Image:
    """A score of every head, one of SCALES: (L, H). `baseline`: a uniform head's score.

    What could not be measured has no colour, and no number.
    """
    table = Table(*values.shape)
    uniform = [] if baseline is None else [f"a head that looks everywhere alike has {_number(baseline)}"]
    caption = _wrapped([CAPTIONS[name], *uniform])
    picture = _background(table, caption, SCALES[name]).copy()
    write(picture, (table.margin, table.margin), f"{name} · step {step}", TITLE_SIZE, "lt", ink=INK)
    _draw_cells(picture, table, table.top(len(caption)), values, SCALES[name])
    return coloured(picture)


@dataclass(frozen=True)
class Table:
    """Where the cells of L layers and H heads stand, in pixels."""

    layers: int
    heads: int

    margin = 2 * TEXT_SIZE

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell."""
        width = _between(TABLE_WIDTH // self.heads, CELL_WIDTHS)
        return width, _between(min(width * 5 // 8, TABLE_HEIGHT // self.layers), CELL_HEIGHTS)

    @cached_property
    def left(self) -> int:
        """Where the first column begins."""
        return self.margin + length(f"layer {self.layers}", TEXT_SIZE) + TEXT_SIZE // 2

    @property
    def width(self) -> int:
        """Width of the picture."""
        return max(self.left + self.heads * self.cell[0], self.margin + CAPTION_WIDTH) + self.margin

    @property
    def height(self) -> int:
        """Height of all cells."""
        return self.layers * self.cell[1]

    def top(self, caption_lines: int) -> int:
        """Where the first row begins, below the title and so many lines of caption."""
        return self.margin + TITLE_SIZE + (caption_lines + 1) * LINE + TEXT_SIZE

    @property
    def number_size(self) -> int:
        """Font size of a cell's number."""
        width, height = self.cell
        return _between(min(width * 3 // 8, height * 2 // 3), NUMBER_SIZES)


@lru_cache(maxsize=len(SCALES))
def _background(table: Table, caption: tuple[str, ...], scale: Scale) -> Image.Image:
    """What every picture of a score has: its caption, the names of layers and heads, and its scale."""
    top = table.top(len(caption))
    below = top + table.height + TEXT_SIZE
    picture = blank(table.width, below + 5 * TEXT_SIZE // 2 + table.margin)
    for number, line in enumerate(caption):
        write(picture, (table.margin, table.margin + TITLE_SIZE + LINE // 2 + number * LINE), line, TEXT_SIZE, "lt")
    _draw_names(picture, table, top)
    positions = scale.position(np.array(scale.ticks, float)).tolist()
    draw_scale(picture, (table.left, below), TEXT_SIZE, dict(zip(scale.ticks, positions, strict=True)))
    return picture


def _draw_names(picture: Image.Image, table: Table, top: int) -> None:
    """The names of layers and heads, as many as there is room for."""
    width, height = table.cell
    size = min(TEXT_SIZE, height)
    every_layer, every_head = math.ceil(size / height), math.ceil(2 * size / width)
    right, above = table.left - TEXT_SIZE // 2, top - TEXT_SIZE // 2
    write(picture, (right, above), "head", TEXT_SIZE, "rs")
    for layer in range(0, table.layers, every_layer):
        write(picture, (right, top + layer * height + height // 2), f"layer {layer}", size, "rm")
    for head in range(0, table.heads, every_head):
        write(picture, (table.left + head * width + width // 2, above), str(head), size, "ms")


def _draw_cells(picture: Image.Image, table: Table, top: int, values: np.ndarray, scale: Scale) -> None:
    width, height = table.cell
    grounds = np.where(np.isfinite(values), place(scale.position(values)), MASKED)
    inks = np.where(palette()[grounds] @ LUMA < DARK, PAPER, INK)
    for layer, head in np.ndindex(values.shape):
        x, y, ground = table.left + head * width, top + layer * height, int(grounds[layer, head])
        picture.paste(ground, (x, y, x + width - 1, y + height - 1))
        middle, number = (x + width // 2, y + height // 2), _number(float(values[layer, head]))
        write(picture, middle, number, table.number_size, "mm", ink=int(inks[layer, head]), ground=ground)


def _between(value: int, ends: tuple[int, int]) -> int:
    """The nearest to a value from the first to the second."""
    return min(max(value, ends[0]), ends[1])


def _number(value: float) -> str:
    """A number in at most five characters, and a sign."""
    if not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 999.5:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}".replace("-0.00", "0.00")


def _wrapped(parts: list[str]) -> tuple[str, ...]:
    """Parts in one line if they fit, or a line each."""
    line = " · ".join(parts)
    return (line,) if length(line, TEXT_SIZE) <= CAPTION_WIDTH else tuple(parts)
