"""Attention drawn as a picture, all heads of a layer in one, with nothing but numpy and Pillow.

The scale is fixed: a colour means the same weight in every picture. Size and places follow from the number of
heads and the tokens alone: pictures of one probe at two steps lie exactly on top of each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from PIL import Image

from transformer.inspection.canvas import (
    HATCH,
    INK,
    MASKED,
    NOT_FINITE,
    blank,
    coloured,
    draw_scale,
    font,
    length,
    paste_framed,
    place,
    write,
)

MAX_WIDTH = 1600
MAX_CELL = 16
MIN_SIDE = 96
TEXT_SIZES = (13, 24)
HEADS_IN_ONE_ROW = 4
LABEL_SIZES = range(15, 8, -1)
SPARSE_LABEL_SIZE = 11
LABEL_CHARACTERS = 12
ASCII = "".join(map(chr, range(33, 127)))

CAPTION = "rows: the token that looks (query) · columns: the token it looks at (key)"
MASKED_NAME, NOT_FINITE_NAME = "future (masked)", "NaN"


def draw_layer(weights: np.ndarray, tokens: Sequence[str], *, layer: int, step: int) -> Image.Image:
    """All heads of a layer: weights (H, T, T) from query to key, T tokens.

    Rows look, columns are looked at. The future is hatched where its weight is 0, as it must be. NaN and infinity
    have a colour of their own, and their head is named.
    """
    layout = choose_layout(len(weights), tuple(shown(token) for token in tokens))
    picture = _background(layout, bool(np.isfinite(weights).all())).copy()
    write(picture, (layout.margin, layout.margin), f"layer {layer} · step {step}", layout.title, "lt", ink=INK)
    for head, head_weights in enumerate(weights.astype(np.float32)):
        _draw_head(picture, head_weights, layout, head)
    return coloured(picture)


@dataclass(frozen=True)
class Layout:
    """Where everything stands, in pixels, for a number of heads, the labels of T tokens and a size of cell."""

    heads: int
    labels: tuple[str, ...]
    cell: int

    @property
    def side(self) -> int:
        """Height and width of one head's matrix."""
        return self.cell * len(self.labels)

    @property
    def columns(self) -> int:
        """Heads in a row: all if they are few, else about as many as rows with few places left empty."""
        if self.heads <= HEADS_IN_ONE_ROW:
            return self.heads
        root = math.isqrt(self.heads - 1) + 1
        return min((root, root + 1), key=lambda columns: (-self.heads % columns, columns))

    @property
    def text(self) -> int:
        """Font size of words; it grows with the picture, which TensorBoard shrinks to a card."""
        smallest, largest = TEXT_SIZES
        return min(max(self.columns * self.side // 56, smallest), largest)

    @property
    def heading(self) -> int:
        """Font size of the heads' names; the title's is a third more."""
        return self.text * 3 // 2

    @property
    def title(self) -> int:
        """Font size of the title."""
        return self.text * 2

    @property
    def hatch(self) -> int:
        """From one line of the hatching to the next."""
        return self.text * 2 // 3

    @property
    def margin(self) -> int:
        """White space around the picture."""
        return 2 * self.text

    @property
    def label(self) -> int:
        """Font size of token labels: the largest with which each cell has its own, if there is one."""
        return next((size for size in LABEL_SIZES if _line_height(size) <= self.cell), SPARSE_LABEL_SIZE)

    @property
    def stride(self) -> int:
        """Every how many tokens there is room for a label."""
        return math.ceil(_line_height(self.label) / self.cell)

    @cached_property
    def label_room(self) -> int:
        """Length of the longest label with the gap to its matrix."""
        return math.ceil(max(map(font(self.label).getlength, self.labels))) + self.label // 2

    @property
    def width(self) -> int:
        """Width of the picture."""
        heads = self.corner(self.columns - 1)[0] + self.side - self.margin
        return 2 * self.margin + max(heads, length(CAPTION, self.text))

    @property
    def height(self) -> int:
        """Height of the picture."""
        return self.corner(self.heads - 1)[1] + self.side + self.label_room + 4 * self.text + self.margin

    def corner(self, head: int) -> tuple[int, int]:
        """Top left pixel (x, y) of a head's matrix; the heads of a row share the labels on their left."""
        row, column = divmod(head, self.columns)
        above = self.margin + self.title + 3 * self.text + self.heading
        x = self.margin + self.label_room + column * (self.side + 2 * self.text)
        return x, above + row * (self.side + self.label_room + self.heading + 3 * self.text)


@lru_cache(maxsize=1)  # a run draws one probe again and again
def choose_layout(heads: int, labels: tuple[str, ...]) -> Layout:
    """The layout with the largest cell whose picture is no wider than MAX_WIDTH."""
    largest = max(MAX_CELL, MIN_SIDE // len(labels))
    layouts = [Layout(heads, labels, cell) for cell in range(largest, 0, -1)]
    return next((layout for layout in layouts if layout.width <= MAX_WIDTH), layouts[-1])


def shown(token: str) -> str:
    """A token in characters that the font has: a space as a dot, others as Python's escapes, a long end cut off."""
    pieces = [_shown_character(character) for character in token[: LABEL_CHARACTERS + 1]]
    if sum(map(len, pieces)) <= LABEL_CHARACTERS:
        return "".join(pieces) or '""'
    while sum(map(len, pieces)) >= LABEL_CHARACTERS:
        pieces.pop()
    return "".join(pieces) + "…"


@cache
def _shown_character(character: str) -> str:
    if character == " ":
        return "·"
    if character.isprintable() and character not in "·…\\" and _has_glyph(character):
        return character
    return character.encode("unicode_escape").decode("ascii")


def _has_glyph(character: str) -> bool:
    letters = font(LABEL_SIZES[0])
    return bytes(letters.getmask(character)) != bytes(letters.getmask("\uffff"))  # which no font has


@lru_cache(maxsize=2)  # the layers of a model share it; some may have NaN
def _background(layout: Layout, all_finite: bool) -> Image.Image:
    """What every picture of a layout has: caption, hatching, token labels and legend."""
    picture = blank(layout.width, layout.height)
    write(picture, (layout.margin, layout.margin + layout.title + layout.text // 2), CAPTION, layout.text, "lt")
    labels, hatching = _row_labels(layout), _hatching(layout.side, layout.hatch)
    for head in range(layout.heads):
        x, y = layout.corner(head)
        paste_framed(picture, (x, y), hatching)
        if head % layout.columns == 0:
            picture.paste(labels, (x - layout.label_room, y))
        picture.paste(labels.transpose(Image.Transpose.ROTATE_90), (x, y + layout.side))
    _draw_legend(picture, layout, all_finite=all_finite)
    return picture


def _row_labels(layout: Layout) -> Image.Image:
    """What stands left of a matrix; a quarter turn makes it what stands below."""
    labels = blank(layout.label_room, layout.side)
    right = layout.label_room - layout.label // 2
    edge = layout.stride // 2  # a label is taller than its cell there, and would be cut off
    for i in range(edge, len(layout.labels) - edge, layout.stride):
        y = i * layout.cell + (layout.cell - _line_height(layout.label)) // 2 - _line_top(layout.label)
        write(labels, (right, y), layout.labels[i], layout.label, "ra")
    return labels


def _hatching(side: int, period: int) -> Image.Image:
    stroke = np.add.outer(np.arange(side), np.arange(side)) % period < period // 3
    return Image.fromarray(np.where(stroke, HATCH, MASKED).astype(np.uint8))


def _draw_legend(picture: Image.Image, layout: Layout, *, all_finite: bool) -> None:
    size, x, y = layout.text, layout.margin, layout.height - layout.margin - 2 * layout.text
    write(picture, (x, y + size // 2), "weight", size, "lm")
    x += length("weight ", size) + size // 2
    x += draw_scale(picture, (x, y), size, {tick: tick for tick in (0, 0.25, 0.5, 0.75, 1)}) + 2 * size
    swatches = {MASKED_NAME: _hatching(size, layout.hatch)}
    if not all_finite:
        swatches[NOT_FINITE_NAME] = Image.new("L", (size, size), NOT_FINITE)
    for name, swatch in swatches.items():
        paste_framed(picture, (x, y), swatch)
        write(picture, (x + size * 3 // 2, y + size // 2), name, size, "lm")
        x += length(name, size) + 7 * size // 2


def _draw_head(picture: Image.Image, weights: np.ndarray, layout: Layout, head: int) -> None:
    """A head's name and its cells, (T, T); the hatching stays where the future has no weight."""
    x, y = layout.corner(head)
    finite = bool(np.isfinite(weights).all())
    name, ink = (f"head {head}", INK) if finite else (f"head {head} · {NOT_FINITE_NAME}", NOT_FINITE)
    write(picture, (x, y - layout.text // 2), name, layout.heading, "ls", ink=ink)
    seen = np.tri(len(weights), dtype=bool) | (weights != 0)
    cells, mask = (
        Image.fromarray(array).resize((layout.side, layout.side), Image.Resampling.NEAREST)
        for array in (place(weights), seen.astype(np.uint8) * 255)
    )
    picture.paste(cells, (x, y), mask)


def _line_top(size: int) -> int:
    """Pixels from where text is drawn to the top of the tallest character."""
    return math.floor(font(size).getbbox(ASCII)[1])


@cache
def _line_height(size: int) -> int:
    """Pixels from the top of the tallest character to the bottom of the deepest."""
    return math.ceil(font(size).getbbox(ASCII)[3]) - _line_top(size)
