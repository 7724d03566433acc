"""What pictures are made of: indices of one palette, in which text and the fixed scale of colours are drawn.

A picture is drawn as indices (Pillow's mode "L") and coloured once it is done, so that no pixel is ever converted.
"""

import math
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

STEPS = 200
"""Colours of the scale: indices 0 to STEPS - 1."""
PAPER, INK, MUTED, FRAME, MASKED, HATCH, NOT_FINITE = range(STEPS, STEPS + 7)
COLOURS: Mapping[int, Colour] = {
    PAPER: (255, 255, 255),
    INK: (31, 36, 48),
    MUTED: (88, 95, 110),
    FRAME: (190, 195, 204),
    MASKED: (243, 244, 246),
    HATCH: (226, 229, 234),
    NOT_FINITE: (226, 88, 34),
}

LEVELS = 8
"""Steps from the ground to the ink in the edges of letters; on paper each has its colour, elsewhere the nearest."""

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


@cache
def palette() -> np.ndarray:
    """The colours of every picture: the scale, COLOURS, and edges of letters: (at most 256, 3) uint8 sRGB."""
    scale = colour_map()[np.rint(np.linspace(0, 255, STEPS)).astype(int)]
    fixed = np.concatenate([scale, np.array(list(COLOURS.values()))])
    edges = [_blend(fixed[PAPER], fixed[ink])[1:-1] for ink in (INK, MUTED, NOT_FINITE)]
    colours: np.ndarray = np.concatenate([fixed, *edges]).astype(np.uint8)
    return colours


def place(positions: np.ndarray) -> np.ndarray:
    """Indices of places in the scale, from 0 to 1 and beyond it the nearest end; of NaN and infinity NOT_FINITE."""
    known = np.isfinite(positions)
    steps = np.rint((STEPS - 1) * np.where(known, positions, 0).clip(0, 1))
    return np.where(known, steps, NOT_FINITE).astype(np.uint8)


def blank(width: int, height: int) -> Image.Image:
    """Paper."""
    return Image.new("L", (width, height), PAPER)


def coloured(picture: Image.Image) -> Image.Image:
    """A picture that is done, with its palette: its mode is "P" from now on."""
    picture.putpalette(palette().tobytes())
    return picture


def write(
    picture: Image.Image,
    at: tuple[int, int],
    text: str,
    size: int,
    anchor: str,
    *,
    ink: int = MUTED,
    ground: int = PAPER,
) -> None:
    """Write a line on a ground of one colour; `anchor` as Pillow has it says what of the text stands `at`."""
    levels, left, top = _letters(text, size, anchor)
    letters, box = Image.fromarray(_edges(ground, ink)[levels]), (at[0] + left, at[1] + top)
    picture.paste(letters, box, Image.fromarray(levels > 0))


def paste_framed(picture: Image.Image, at: tuple[int, int], part: Image.Image) -> None:
    """Put a picture into another with its top left pixel `at`, and a line around it."""
    x, y = at
    ImageDraw.Draw(picture).rectangle((x - 1, y - 1, x + part.width, y + part.height), outline=FRAME)
    picture.paste(part, at)


def draw_scale(picture: Image.Image, at: tuple[int, int], size: int, ticks: Mapping[float, float]) -> int:
    """The scale as a bar as high as text of a size, with names and positions of its ticks; its width."""
    (x, y), width = at, 9 * size
    bar = place(np.linspace(0, 1, width))
    paste_framed(picture, at, Image.fromarray(np.tile(bar, (size, 1))))
    for name, position in ticks.items():
        tick = x + round(position * (width - 1))
        ImageDraw.Draw(picture).line((tick, y + size, tick, y + size + size // 4), MUTED)
        write(picture, (tick, y + size + size // 3), f"{name:g}", size * 3 // 4, "mt")
    return width


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font."""
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont)  # every wheel of Pillow has FreeType
    return found


def length(text: str, size: int) -> int:
    """Width of a line, in pixels."""
    return math.ceil(font(size).getlength(text))


@lru_cache(maxsize=1024)  # numbers and names come again and again
def _letters(text: str, size: int, anchor: str) -> tuple[np.ndarray, int, int]:
    """How much ink a line has in each pixel of its box, 0 to LEVELS, and where that stands from the anchor."""
    left, top, right, bottom = font(size).getbbox(text, anchor=anchor)
    x, y = math.floor(left), math.floor(top)
    alpha = Image.new("L", (math.ceil(right) - x, math.ceil(bottom) - y))
    ImageDraw.Draw(alpha).text((-x, -y), text, 255, font(size), anchor=anchor)
    return np.rint(np.asarray(alpha) * (LEVELS / 255)).astype(np.uint8), x, y


@cache
def _edges(ground: int, ink: int) -> np.ndarray:
    """The index of each of LEVELS + 1 blends, or of the nearest colour that there is."""
    colours = palette().astype(int)
    blends = _blend(colours[ground], colours[ink])
    return np.asarray(((blends[:, None] - colours) ** 2).sum(-1).argmin(-1), np.uint8)


def _blend(ground: np.ndarray, ink: np.ndarray) -> np.ndarray:
    """From one colour to another in LEVELS steps: (LEVELS + 1, 3)."""
    return np.rint(np.linspace(ground, ink, LEVELS + 1))
