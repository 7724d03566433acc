"""The pictures of scores: a table of heads, on a scale that does not move."""

import numpy as np
import pytest

from transformer.inspection import canvas
from transformer.inspection.canvas import COLOURS, STEPS, colour_map
from transformer.inspection.score_picture import CAPTIONS, SCALES, Table, draw_score

PAPER, MASKED = COLOURS[canvas.PAPER], COLOURS[canvas.MASKED]


def drawn(name: str, values: np.ndarray, step: int = 1, baseline: float | None = None) -> np.ndarray:
    """The picture of a score as it is seen: (height, width, 3)."""
    return np.asarray(draw_score(name, values, step=step, baseline=baseline).convert("RGB"))


def cells(name: str, values: list[list[float]]) -> np.ndarray:
    """The colour of every cell, near its top left corner: (L, H, 3)."""
    array = np.array(values, float)
    picture = drawn(name, array)
    table = Table(*array.shape)
    width, height = table.cell
    top = int(np.argmax(_filled(picture, table)))
    return np.array(
        [
            [picture[top + layer * height + 2, table.left + head * width + 2] for head in range(table.heads)]
            for layer in range(table.layers)
        ]
    )


def _filled(picture: np.ndarray, table: Table) -> np.ndarray:
    """Rows from which the first column is filled over half a cell."""
    column = (picture[:, table.left + 2] != PAPER).any(-1)
    run = table.cell[1] // 2
    return np.array([column[row : row + run].all() for row in range(len(column))])


def test_a_colour_stands_for_the_same_number_in_every_picture():
    low, high = cells("induction", [[0.1, 0.2]]), cells("induction", [[0.9, 0.2]])
    assert (low[0, 1] == high[0, 1]).all()
    assert (low[0, 0] != high[0, 0]).any()


@pytest.mark.parametrize(
    ("name", "value", "position"),
    [
        ("entropy", 0.5, 0.5),
        ("induction", 1.0, 1.0),
        ("copying", 0.0, 0.5),
        ("copying", -1.0, 0.0),
        ("max_logit", 9.0, np.log(10) / np.log(101)),
        ("max_logit", 1e9, 1.0),
        ("knockout", -3.0, 0.0),
        ("knockout", 0.1, np.log(11) / np.log(101)),
    ],
)
def test_a_number_stands_where_its_scale_says(name, value, position):
    shade = round(position * (STEPS - 1)) / (STEPS - 1)
    assert (cells(name, [[value, value]])[0, 0] == colour_map()[round(shade * 255)]).all()


def test_what_could_not_be_measured_has_no_colour():
    assert (cells("induction", [[0.5, np.nan], [np.inf, 0.0]])[[0, 1], [1, 0]] == MASKED).all()


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 5), (3, 29), (31, 2)])
def test_the_size_of_a_picture_follows_from_its_shape_alone(shape):
    rng = np.random.default_rng(5)
    pictures = [drawn("copying", rng.normal(size=shape), step=step, baseline=0.25) for step in (0, 10**6)]
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any()


def test_a_picture_has_the_palette_of_all_pictures():
    picture = draw_score("entropy", np.full((2, 3), 0.5), step=1, baseline=None)
    assert picture.mode == "P"
    assert picture.getpalette() == canvas.palette().ravel().tolist()


@pytest.mark.parametrize("name", SCALES)
def test_a_picture_is_the_same_whatever_was_drawn_before(name):
    first = drawn(name, np.full((2, 3), 0.5), baseline=0.25)
    for values, baseline in ((np.full((2, 3), np.nan), 0.25), (np.zeros((2, 3)), 0.75), (np.zeros((3, 2)), 0.25)):
        drawn(name, values, step=99_999, baseline=baseline)
    assert np.array_equal(drawn(name, np.full((2, 3), 0.5), baseline=0.25), first)


def test_the_score_of_a_uniform_head_is_named():
    pictures = [drawn("induction", np.full((2, 3), 0.5), baseline=baseline) for baseline in (0.25, 0.75)]
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any()


def test_every_score_has_a_caption():
    assert set(CAPTIONS) == set(SCALES)
