"""The palette of all pictures, and the text that is written with it."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from transformer.inspection.canvas import (
    COLOURS,
    HATCH,
    INK,
    LEVELS,
    MUTED,
    NOT_FINITE,
    PAPER,
    STEPS,
    blank,
    colour_map,
    coloured,
    draw_scale,
    font,
    length,
    palette,
    paste_framed,
    place,
    write,
)

SIZE = 17


def seen(picture: Image.Image) -> np.ndarray:
    """A picture's colours: (height, width, 3)."""
    return np.asarray(coloured(picture.copy()).convert("RGB")).astype(int)


def test_lightness_alone_tells_weights_apart_in_even_steps():
    srgb = colour_map() / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(luminance > 216 / 24389, 116 * np.cbrt(luminance) - 16, luminance * 24389 / 27)
    coarse = -np.diff(lightness[::15])
    assert lightness[0] > 95
    assert lightness[-1] < 20
    assert (np.diff(luminance) < 0).all()
    assert coarse.max() < 1.5 * coarse.min()


def test_the_palette_is_the_scale_then_the_named_colours_and_fits_a_png():
    colours = palette()
    ends = np.rint(np.array([0, 1, STEPS - 1]) / (STEPS - 1) * 255).astype(int)
    assert len(colours) <= 256
    assert np.array_equal(colours[[0, 1, STEPS - 1]], colour_map()[ends])
    assert {index: tuple(colours[index].tolist()) for index in COLOURS} == COLOURS
    scale = {tuple(colour) for colour in colours[:STEPS].tolist()}
    assert len(scale) == STEPS
    assert not scale & set(COLOURS.values())


@pytest.mark.parametrize(
    ("position", "index"),
    [(0, 0), (1, STEPS - 1), (0.4, 80), (-3, 0), (7, STEPS - 1), (np.nan, NOT_FINITE), (np.inf, NOT_FINITE)],
)
def test_a_place_in_the_scale_has_the_nearest_step(position, index):
    assert place(np.array([position])).tolist() == [index]


@pytest.mark.parametrize("ink", [INK, MUTED, NOT_FINITE])
@pytest.mark.parametrize("anchor", ["lt", "mm", "rs", "ra"])
def test_text_on_paper_stands_where_pillow_writes_it_and_looks_alike(ink, anchor):
    picture, expected = blank(211, 67), Image.new("RGB", (211, 67), COLOURS[PAPER])
    write(picture, (101, 31), "(|@gÅj", SIZE, anchor, ink=ink)
    ImageDraw.Draw(expected).text((101, 31), "(|@gÅj", COLOURS[ink], font(SIZE), anchor=anchor)
    off = np.abs(seen(picture) - np.asarray(expected).astype(int))
    assert (seen(picture) == COLOURS[ink]).all(-1).any()
    assert off.max() <= 255 / LEVELS / 2 + 1


@pytest.mark.parametrize(("ground", "ink"), [(0, INK), (60, INK), (100, PAPER), (140, PAPER), (STEPS - 1, PAPER)])
def test_text_on_a_colour_is_legible_and_its_edges_are_between_the_two(ground, ink):
    picture = Image.new("L", (97, 41), ground)
    write(picture, (48, 20), "-0.58", SIZE, "mm", ink=ink, ground=ground)
    colours, first, last = seen(picture), *palette()[[ground, ink]].astype(int)
    assert (colours == last).all(-1).any()
    assert np.array_equal(colours[0, 0], first)
    way = ((colours - first) @ (last - first)) / ((last - first) @ (last - first))
    assert way.min() >= 0
    assert way.max() <= 1
    beside = np.linalg.norm(colours - (first + way[..., None] * (last - first)), axis=-1)
    assert beside.max() < 50


def test_text_leaves_what_is_around_its_letters():
    picture = Image.new("L", (97, 41), HATCH)
    write(picture, (48, 20), "-", SIZE, "mm", ink=INK, ground=PAPER)
    write(picture, (48, 20), "o o", SIZE, "mm", ink=INK, ground=PAPER)
    indices = np.asarray(picture)
    assert (indices == INK).any()
    assert (indices == HATCH)[:, [0, -1]].all()
    assert PAPER not in indices


def test_a_frame_lies_just_outside_what_it_frames():
    picture, part = blank(23, 19), Image.new("L", (7, 5), NOT_FINITE)
    paste_framed(picture, (11, 3), part)
    indices = np.asarray(picture)
    assert (indices[3:8, 11:18] == NOT_FINITE).all()
    assert (indices != PAPER).sum() == 9 * 7


def test_the_scale_runs_from_end_to_end_with_ticks_where_they_belong():
    picture = blank(300, 60)
    width = draw_scale(picture, (20, 10), SIZE, {0: 0.0, 10: 0.5, 100: 1.0})
    indices = np.asarray(picture)
    bar = indices[10 : 10 + SIZE, 20 : 20 + width].astype(int)
    assert (bar == bar[0]).all()
    assert (bar[0, 0], bar[0, -1]) == (0, STEPS - 1)
    assert (np.diff(bar[0]) >= 1).all()
    (ticks,) = np.nonzero(indices[10 + SIZE + 1] == MUTED)
    assert ticks.tolist() == [20, 20 + round((width - 1) / 2), 20 + width - 1]


def test_a_line_is_as_long_as_it_says():
    picture = blank(300, 60)
    write(picture, (0, 30), "MMMM", SIZE, "ls")
    _, columns = np.nonzero(np.asarray(picture) != PAPER)
    assert length("MMMM", SIZE) - 3 <= columns.max() + 1 <= length("MMMM", SIZE)
