"""Attention drawn as a picture, all heads of a layer in one, with nothing but numpy and Pillow.

The scale is fixed: a colour means the same weight in every picture. Size and places follow from the number of
heads and the tokens alone: pictures of one probe at two steps lie exactly on top of each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

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

PAPER, INK, MUTED, FRAME = (255, 255, 255), (31, 36, 48), (88, 95, 110), (190, 195, 204)
MASKED, HATCH = (243, 244, 246), (226, 229, 234)
NOT_FINITE = (226, 88, 34)

# From no attention to all of it. Lightness falls evenly from end to end; hue passes through these (sRGB).
ANCHORS = ((255, 251, 235), (186, 222, 190), (58, 158, 176), (44, 88, 160), (30, 20, 70))

# Oklab (https://bottosson.github.io/posts/oklab): linear sRGB -> cones -> lightness, green-red, blue-yellow.
RGB_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
CONES_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def draw_layer(weights: np.ndarray, tokens: Sequence[str], *, layer: int, step: int) -> np.ndarray:
    """All heads of a layer: weights (H, T, T) from query to key, T tokens -> (height, width, 3) uint8.

    Rows look, columns are looked at. The future is hatched where its weight is 0, as it must be. NaN and infinity
    have a colour of their own, and their head is named.
    """
    layout = choose_layout(len(weights), tuple(shown(token) for token in tokens))
    picture = Image.new("RGB", (layout.width, layout.height), PAPER)
    draw = ImageDraw.Draw(picture)

    title = (layout.margin, layout.margin)
    draw.text(title, f"layer {layer} · step {step}", INK, _font(layout.title), anchor="lt")
    caption = (layout.margin, layout.margin + layout.title + layout.text // 2)
    draw.text(caption, CAPTION, MUTED, _font(layout.text), anchor="lt")
    for head, head_weights in enumerate(weights.astype(np.float32)):
        _draw_head(picture, draw, head_weights, layout, head)
    _draw_legend(picture, draw, layout, all_finite=bool(np.isfinite(weights).all()))
    return np.asarray(picture)


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
        return math.ceil(max(map(_font(self.label).getlength, self.labels))) + self.label // 2

    @property
    def width(self) -> int:
        """Width of the picture."""
        heads = self.corner(self.columns - 1)[0] + self.side - self.margin
        return 2 * self.margin + max(heads, math.ceil(_font(self.text).getlength(CAPTION)))

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
    font = _font(LABEL_SIZES[0])
    return bytes(font.getmask(character)) != bytes(font.getmask("\uffff"))  # which no font has


@cache
def colour_map() -> np.ndarray:
    """Colours of the weights 0, 1/255 … 1 in steps of equal lightness: (256, 3) uint8 sRGB."""
    anchors = np.array(ANCHORS) / 255
    linear = np.where(anchors <= 0.04045, anchors / 12.92, ((anchors + 0.055) / 1.055) ** 2.4)
    lightness, *hue = CONES_TO_LAB @ np.cbrt(RGB_TO_CONES @ linear.T)
    even = np.linspace(lightness[0], lightness[-1], 256)
    # np.interp wants rising abscissae, and lightness falls.
    lab = np.stack([even, *(np.interp(-even, -lightness, channel) for channel in hue)])
    linear = np.linalg.solve(RGB_TO_CONES, np.linalg.solve(CONES_TO_LAB, lab) ** 3).T.clip(0, 1)
    colours = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    table: np.ndarray = np.rint(255 * colours).astype(np.uint8)
    return table


def _cells(weights: np.ndarray, cell: int, period: int) -> np.ndarray:
    """One head's matrix in colour: (T, T) -> (T·cell, T·cell, 3) uint8; weights outside [0, 1] are clipped."""
    finite = np.isfinite(weights)
    indices = np.rint(255 * np.where(finite, weights, 0).clip(0, 1)).astype(np.uint8)
    colours = colour_map()[indices]
    colours[~finite] = NOT_FINITE
    masked = np.triu(np.ones_like(finite), 1) & (weights == 0)
    pixels, hatched = (array.repeat(cell, 0).repeat(cell, 1) for array in (colours, masked))
    return np.where(hatched[..., None], _hatching(len(hatched), period), pixels)


@lru_cache(maxsize=2)  # of a matrix and of its entry in the legend
def _hatching(side: int, period: int) -> np.ndarray:
    stroke = np.add.outer(np.arange(side), np.arange(side)) % period < period // 3
    return np.where(stroke[..., None], HATCH, MASKED).astype(np.uint8)


def _draw_head(picture: Image.Image, draw: ImageDraw.ImageDraw, weights: np.ndarray, layout: Layout, head: int) -> None:
    x, y = layout.corner(head)
    finite = bool(np.isfinite(weights).all())
    name, colour = (f"head {head}", INK) if finite else (f"head {head} · {NOT_FINITE_NAME}", NOT_FINITE)
    draw.text((x, y - layout.text // 2), name, colour, _font(layout.heading), anchor="ls")
    draw.rectangle((x - 1, y - 1, x + layout.side, y + layout.side), outline=FRAME)
    picture.paste(Image.fromarray(_cells(weights, layout.cell, layout.hatch)), (x, y))
    labels = _row_labels(layout)
    if head % layout.columns == 0:
        picture.paste(MUTED, (x - layout.label_room, y), labels)
    picture.paste(MUTED, (x, y + layout.side), labels.transpose(Image.Transpose.ROTATE_90))


@lru_cache(maxsize=1)
def _row_labels(layout: Layout) -> Image.Image:
    """Labels as a mask of what stands left of a matrix; a quarter turn makes it what stands below."""
    labels = Image.new("L", (layout.label_room, layout.side))
    draw = ImageDraw.Draw(labels)
    right, font = layout.label_room - layout.label // 2, _font(layout.label)
    edge = layout.stride // 2  # a label is taller than its cell there, and would be cut off
    for i in range(edge, len(layout.labels) - edge, layout.stride):
        y = i * layout.cell + (layout.cell - _line_height(layout.label)) // 2 - _line_top(layout.label)
        draw.text((right, y), layout.labels[i], 255, font, anchor="ra")
    return labels


def _draw_legend(picture: Image.Image, draw: ImageDraw.ImageDraw, layout: Layout, *, all_finite: bool) -> None:
    size, font = layout.text, _font(layout.text)
    x, y = layout.margin, layout.height - layout.margin - 2 * size
    draw.text((x, y + size // 2), "weight", MUTED, font, anchor="lm")
    x += math.ceil(font.getlength("weight ")) + size // 2
    bar = np.linspace(0, 255, 9 * size).round().astype(int)
    picture.paste(Image.fromarray(np.tile(colour_map()[bar], (size, 1, 1))), (x, y))
    draw.rectangle((x - 1, y - 1, x + len(bar), y + size), outline=FRAME)
    for tick in (0, 0.25, 0.5, 0.75, 1):
        at = x + round(tick * (len(bar) - 1))
        draw.line((at, y + size, at, y + size + size // 4), MUTED)
        draw.text((at, y + size + size // 3), f"{tick:g}", MUTED, _font(size * 3 // 4), anchor="mt")
    x += len(bar) + 2 * size
    swatches = {MASKED_NAME: _hatching(size, layout.hatch)}
    if not all_finite:
        swatches[NOT_FINITE_NAME] = np.full((size, size, 3), NOT_FINITE, np.uint8)
    for name, swatch in swatches.items():
        picture.paste(Image.fromarray(swatch), (x, y))
        draw.rectangle((x - 1, y - 1, x + size, y + size), outline=FRAME)
        draw.text((x + size * 3 // 2, y + size // 2), name, MUTED, font, anchor="lm")
        x += math.ceil(font.getlength(name)) + 7 * size // 2


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # every wheel of Pillow has FreeType
    return font


def _line_top(size: int) -> int:
    """Pixels from where text is drawn to the top of the tallest character."""
    return math.floor(_font(size).getbbox(ASCII)[1])


@cache
def _line_height(size: int) -> int:
    """Pixels from the top of the tallest character to the bottom of the deepest."""
    return math.ceil(_font(size).getbbox(ASCII)[3]) - _line_top(size)
