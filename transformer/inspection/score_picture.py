"""One score of every head drawn as a table, rows layers and columns heads, in the look of the attention maps.

The scale belongs to the score: a colour means the same number in every picture of it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from transformer.inspection.heatmap import FRAME, INK, MASKED, MUTED, PAPER, colour_map

TABLE_WIDTH, TABLE_HEIGHT = 640, 960
"""Size of a table whose cells are neither the smallest nor the largest."""
CELL_WIDTHS, CELL_HEIGHTS = (20, 96), (12, 60)
NUMBER_SIZES = (8, 22)
TEXT_SIZE, TITLE_SIZE = 18, 30
LINE = 24
TICK_SIZE = 14
BAR_WIDTH = 180
CAPTION_WIDTH = 620
SHADES = 52
"""Colours of the scale. Times four, for the edges of letters, they fit in a palette of 256."""
LUMA = (0.299, 0.587, 0.114)
UNKNOWN = "-"


Colour = tuple[int, int, int]


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


def draw_score(name: str, values: np.ndarray, *, step: int, baseline: float | None) -> np.ndarray:
    """A score of every head, one of SCALES: (L, H) -> (height, width, 3) uint8. `baseline`: a uniform head's score.

    What could not be measured has no colour, and no number.
    """
    scale, table = SCALES[name], Table(*values.shape)
    uniform = [] if baseline is None else [f"a head that looks everywhere alike has {_number(baseline)}"]
    caption = _wrapped([CAPTIONS[name], *uniform])
    top = table.margin + TITLE_SIZE + (len(caption) + 1) * LINE + TEXT_SIZE
    height = top + table.height + 2 * TEXT_SIZE + 2 * TICK_SIZE + table.margin
    canvas = Canvas(table.width, height)
    canvas.text((table.margin, table.margin), f"{name} · step {step}", INK, TITLE_SIZE, "lt")
    for number, line in enumerate(caption):
        y = table.margin + TITLE_SIZE + LINE // 2 + number * LINE
        canvas.text((table.margin, y), line, MUTED, TEXT_SIZE, "lt")
    _draw_names(canvas, table, top)
    _draw_cells(canvas, table, top, values, scale)
    _draw_scale(canvas, table, top + table.height + TEXT_SIZE, scale)
    return canvas.pixels()


class Canvas:
    """A picture with few colours, so that it is a small file: text blends with what is below it in few steps."""

    def __init__(self, width: int, height: int) -> None:
        """`width` and `height` in pixels."""
        self.picture = Image.new("RGB", (width, height), PAPER)
        self.draw = ImageDraw.Draw(self.picture)
        self._inks: dict[Colour, Image.Image] = {}

    def text(self, at: tuple[int, int], text: str, colour: Colour, size: int, anchor: str) -> None:
        """Write a line."""
        ink = self._inks.setdefault(colour, Image.new("L", self.picture.size))
        ImageDraw.Draw(ink).text(at, text, 255, _font(size), anchor=anchor)

    def pixels(self) -> np.ndarray:
        """The picture: (height, width, 3) uint8."""
        for colour, ink in self._inks.items():
            self.picture.paste(colour, mask=ink.point([alpha // 64 * 85 for alpha in range(256)]))
        return np.asarray(self.picture)


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

    @property
    def left(self) -> int:
        """Where the first column begins."""
        return self.margin + math.ceil(_font(TEXT_SIZE).getlength(f"layer {self.layers}")) + TEXT_SIZE // 2

    @property
    def width(self) -> int:
        """Width of the picture."""
        return max(self.left + self.heads * self.cell[0], self.margin + CAPTION_WIDTH) + self.margin

    @property
    def height(self) -> int:
        """Height of all cells."""
        return self.layers * self.cell[1]

    @property
    def number_size(self) -> int:
        """Font size of a cell's number."""
        width, height = self.cell
        return _between(min(width * 3 // 8, height * 2 // 3), NUMBER_SIZES)


def _draw_names(canvas: Canvas, table: Table, top: int) -> None:
    """The names of layers and heads, as many as there is room for."""
    width, height = table.cell
    size = min(TEXT_SIZE, height)
    every_layer, every_head = math.ceil(size / height), math.ceil(2 * size / width)
    right, above = table.left - TEXT_SIZE // 2, top - TEXT_SIZE // 2
    canvas.text((right, above), "head", MUTED, TEXT_SIZE, "rs")
    for layer in range(0, table.layers, every_layer):
        canvas.text((right, top + layer * height + height // 2), f"layer {layer}", MUTED, size, "rm")
    for head in range(0, table.heads, every_head):
        canvas.text((table.left + head * width + width // 2, above), str(head), MUTED, size, "ms")


def _draw_cells(canvas: Canvas, table: Table, top: int, values: np.ndarray, scale: Scale) -> None:
    width, height = table.cell
    for layer, head in np.ndindex(values.shape):
        value = float(values[layer, head])
        x, y = table.left + head * width, top + layer * height
        colour = _colour(float(scale.position(np.array(value)))) if math.isfinite(value) else MASKED
        canvas.draw.rectangle((x, y, x + width - 2, y + height - 2), fill=colour)
        on_it = PAPER if _is_dark(colour) else INK
        canvas.text((x + width // 2, y + height // 2), _number(value), on_it, table.number_size, "mm")


def _draw_scale(canvas: Canvas, table: Table, y: int, scale: Scale) -> None:
    x, draw = table.left, canvas.draw
    for i in range(BAR_WIDTH):
        draw.line((x + i, y, x + i, y + TEXT_SIZE), _colour(i / (BAR_WIDTH - 1)))
    draw.rectangle((x - 1, y - 1, x + BAR_WIDTH, y + TEXT_SIZE), outline=FRAME)
    for tick, position in zip(scale.ticks, scale.position(np.array(scale.ticks, float)), strict=True):
        at = x + round(position * (BAR_WIDTH - 1))
        draw.line((at, y + TEXT_SIZE, at, y + TEXT_SIZE + TICK_SIZE // 3), MUTED)
        canvas.text((at, y + TEXT_SIZE + TICK_SIZE // 2), f"{tick:g}", MUTED, TICK_SIZE, "mt")


def _colour(position: float) -> Colour:
    """The colour of a place in the scale, in SHADES steps."""
    red, green, blue = colour_map()[round(round(position * (SHADES - 1)) / (SHADES - 1) * 255)]
    return int(red), int(green), int(blue)


def _is_dark(colour: Colour) -> bool:
    return float(np.dot(colour, LUMA)) < 140


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


def _wrapped(parts: list[str]) -> list[str]:
    """Parts in one line if they fit, or a line each."""
    line = " · ".join(parts)
    return [line] if _font(TEXT_SIZE).getlength(line) <= CAPTION_WIDTH else parts


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # every wheel of Pillow has FreeType
    return font
