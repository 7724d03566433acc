"""Pictures of attention, judged by their pixels."""

import numpy as np
import pytest
import torch

from transformer.inspection import canvas
from transformer.inspection.canvas import COLOURS, STEPS, colour_map
from transformer.inspection.heatmap import LABEL_CHARACTERS, Layout, choose_layout, draw_layer, shown

PAPER, MASKED, HATCH, NOT_FINITE = (
    COLOURS[index] for index in (canvas.PAPER, canvas.MASKED, canvas.HATCH, canvas.NOT_FINITE)
)

SHAPES = [(1, 1), (1, 2), (2, 3), (4, 16), (3, 31), (6, 29), (7, 13), (8, 61), (16, 17), (2, 256)]
HOSTILE_TOKENS = [
    "", " ", "\n", "\t", "\0", "\x1b[31m", "\x7f", "\x85", "\xad", "\\n", "é", "e\u0301", "漢字", "😀",
    "👩\u200d👩\u200d👧", "\u202eright to left", "\u2028", "\ufeff", "\ufffd", "\ud800", "\uffff", "</script>", "<s>",
    "%s {0} \\", "·", "…", "W" * 10_000, "漢" * 10_000,
]  # fmt: skip


def causal_attention(heads: int, length: int, seed: int = 0) -> np.ndarray:
    """Random rows that sum to 1 over the past; every weight is above 0: (H, T, T)."""
    weights = np.tril(np.random.default_rng(seed).uniform(0.01, 1, (heads, length, length)))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def words(length: int) -> list[str]:
    return [f"w{i}|gy" for i in range(length - 1)] + ["W" * 7]


def layout_of(heads: int, tokens: list[str]) -> Layout:
    return choose_layout(heads, tuple(map(shown, tokens)))


def drawn(weights: np.ndarray, tokens: list[str], layer: int = 0, step: int = 0) -> np.ndarray:
    """The picture of a layer as it is seen: (height, width, 3)."""
    return np.asarray(draw_layer(weights, tokens, layer=layer, step=step).convert("RGB"))


def colour_of(weights: np.ndarray | float) -> np.ndarray:
    """The colour of the nearest of STEPS weights: (..., 3)."""
    nearest = np.rint(np.asarray(weights) * (STEPS - 1)) / (STEPS - 1)
    return colour_map()[np.rint(nearest * 255).astype(int)]


def matrix(picture: np.ndarray, layout: Layout, head: int) -> np.ndarray:
    """The pixels of a head's cells: (T, cell, T, cell, 3)."""
    x, y = layout.corner(head)
    length = len(layout.labels)
    pixels = picture[y : y + layout.side, x : x + layout.side]
    return pixels.reshape(length, layout.cell, length, layout.cell, 3)


def colours_of(pixels: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(colour) for colour in np.unique(pixels.reshape(-1, 3), axis=0).tolist()}


@pytest.mark.parametrize(("heads", "length"), SHAPES)
def test_each_weight_has_the_colour_of_its_value_in_the_row_of_its_query(heads, length):
    weights = causal_attention(heads, length)
    picture = drawn(weights, words(length))
    past = np.tril(np.ones((length, length), bool))
    for head in range(heads):
        cells = matrix(picture, layout_of(heads, words(length)), head).transpose(0, 2, 1, 3, 4)
        expected = colour_of(weights[head])
        assert np.array_equal(cells[past], np.broadcast_to(expected[past][:, None, None], cells[past].shape))


def test_a_weight_has_the_same_colour_in_every_picture():
    tokens, pictures = words(5), []
    for seed, step in ((1, 0), (2, 70_000)):
        weights = causal_attention(3, 5, seed)
        weights[2, 4, 1] = 0.37
        pictures.append(drawn(weights, tokens, step=step))
    cells = [matrix(picture, layout_of(3, tokens), 2)[4, :, 1] for picture in pictures]
    assert len(colours_of(np.stack(cells))) == 1


def test_the_masked_future_is_never_mistaken_for_a_weight():
    weights = np.zeros((2, 7, 7), np.float32)
    cells = matrix(drawn(weights, words(7)), layout_of(2, words(7)), 1)
    future = np.triu(np.ones((7, 7), bool), 1)
    cells = cells.transpose(0, 2, 1, 3, 4)
    assert colours_of(cells[future]) == {MASKED, HATCH}
    assert colours_of(cells[~future]) == colours_of(colour_of(0))
    assert not {MASKED, HATCH, NOT_FINITE} & colours_of(colour_map())


def test_a_weight_on_the_future_is_shown_and_not_hidden_by_the_mask():
    weights = causal_attention(1, 5)
    weights[0, 1, 3] = 0.5
    cells = matrix(drawn(weights, words(5)), layout_of(1, words(5)), 0)
    assert colours_of(cells[1, :, 3]) == colours_of(colour_of(0.5))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_has_a_colour_of_its_own_and_its_head_is_named(value):
    weights = causal_attention(3, 5)
    fine = drawn(weights, words(5))
    weights[1, 2, :3] = value
    broken = drawn(weights, words(5))
    layout = layout_of(3, words(5))

    assert colours_of(matrix(broken, layout, 1)[2, :, :3]) == {NOT_FINITE}
    y, x = np.nonzero((fine != broken).any(-1))
    left, top = layout.corner(1)
    assert (y < top).any(), "the head's name says so"
    legend = y > top + layout.side + layout.label_room
    assert legend.any(), "the legend explains the colour"
    x = x[~legend]
    assert x.min() >= left
    assert x.max() < layout.corner(2)[0]


@pytest.mark.parametrize(("heads", "length"), SHAPES)
def test_pictures_of_a_probe_have_one_size_and_fit_the_screen(heads, length):
    tokens = words(length)
    weights = causal_attention(heads, length)
    first = drawn(weights, tokens)
    weights[0] = np.nan
    last = drawn(weights, tokens, layer=11, step=1_000_000)
    assert first.shape == last.shape
    assert 300 <= first.shape[1] <= 2000


def test_a_picture_has_the_palette_of_all_pictures():
    picture = draw_layer(causal_attention(2, 5), words(5), layer=0, step=0)
    assert picture.mode == "P"
    assert picture.getpalette() == canvas.palette().ravel().tolist()


def test_a_picture_is_the_same_whatever_was_drawn_before():
    weights = causal_attention(3, 5)
    first = drawn(weights, words(5), layer=2, step=7)
    broken = weights.copy()
    broken[1, 2, :3] = np.nan
    for other in (broken, causal_attention(3, 5, seed=1), np.ones_like(weights), causal_attention(2, 7)):
        drawn(other, words(other.shape[-1]), layer=0, step=123_456)
    assert np.array_equal(drawn(weights, words(5), layer=2, step=7), first)


@pytest.mark.parametrize(("heads", "length"), SHAPES)
def test_nothing_reaches_the_edge_of_the_picture(heads, length):
    tokens = (HOSTILE_TOKENS * length)[:length]
    picture = drawn(np.full((heads, length, length), np.nan), tokens, layer=11, step=1_000_000)
    edge = np.ones(picture.shape[:2], bool)
    edge[10:-10, 10:-10] = False
    assert colours_of(picture[edge]) == {PAPER}


def test_step_and_layer_are_written_above_the_heads_and_change_nothing_else():
    weights, tokens = causal_attention(2, 5), words(5)
    pictures = [drawn(weights, tokens, layer=layer, step=step) for layer, step in ((0, 0), (0, 8), (3, 0))]
    _, top = layout_of(2, tokens).corner(0)
    for other in pictures[1:]:
        y, _ = np.nonzero((pictures[0] != other).any(-1))
        assert 0 < y.max() < top - layout_of(2, tokens).heading


@pytest.mark.parametrize(("heads", "length"), SHAPES)
def test_labels_never_overlap(heads, length):
    # The label of one token is replaced: what changes must lie in that label's own band beside every matrix.
    tokens = words(length)  # the last is the widest, and stays
    weights, layout = causal_attention(heads, length), layout_of(heads, tokens)
    before = drawn(weights, tokens)
    for token in range(layout.stride // 2, length - 1, max(1, length // 3 // layout.stride) * layout.stride):
        # "(" and "|" are the tallest characters, "@" and "j" the deepest.
        changed = [*tokens[:token], "(|@j", *tokens[token + 1 :]]
        y, x = np.nonzero((before != drawn(weights, changed)).any(-1))
        band = np.zeros(before.shape[:2], bool)
        half = layout.stride * layout.cell / 2
        middle = (token + 0.5) * layout.cell
        low, high = int(np.floor(middle - half)), int(np.ceil(middle + half))
        for head in range(heads):
            left, top = layout.corner(head)
            band[top + low : top + high, left - layout.label_room : left] = True
            bottom = top + layout.side
            band[bottom : bottom + layout.label_room, left + low : left + high] = True
        assert len(y)
        assert band[y, x].all()


@pytest.mark.parametrize("heads", range(1, 17))
def test_heads_stand_in_reading_order_without_touching(heads):
    tokens = words(11)
    layout = layout_of(heads, tokens)
    taken = np.zeros((layout.height, layout.width), int)
    for head in range(heads):
        x, y = layout.corner(head)
        taken[y - layout.heading : y + layout.side + layout.label_room, x : x + layout.side] += 1
    corners = [layout.corner(head)[::-1] for head in range(heads)]
    assert taken.max() == 1
    assert taken.sum() == heads * layout.side * (layout.side + layout.label_room + layout.heading)
    assert corners == sorted(corners)


def test_the_colour_bar_spans_the_whole_scale():
    tokens = words(3)
    picture = drawn(np.zeros((1, 3, 3)), tokens)
    layout = layout_of(1, tokens)
    below = picture[layout.corner(0)[1] + layout.side + layout.label_room :]
    assert colours_of(colour_map()[[0, 255]]) <= colours_of(below)
    assert {MASKED, HATCH} <= colours_of(below)
    assert NOT_FINITE not in colours_of(below), "explained only where there is one"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_drawn_like_the_same_numbers_in_full(dtype):
    weights = torch.from_numpy(causal_attention(2, 7)).to(dtype)
    array = weights.float().numpy() if dtype == torch.bfloat16 else weights.numpy()
    picture = drawn(array, words(7))
    assert np.array_equal(picture, drawn(weights.float().numpy(), words(7)))


@pytest.mark.parametrize("token", HOSTILE_TOKENS)
def test_a_hostile_token_is_shown_in_few_plain_characters(token):
    label = shown(token)
    assert 1 <= len(label) <= LABEL_CHARACTERS
    assert all(" " < character <= "~" for character in label.replace("·", "").replace("…", ""))


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (" the", "·the"),
        ("\n", r"\n"),
        ("\t", r"\t"),
        ("\r\n", r"\r\n"),
        ("\0", r"\x00"),
        ("\\n", r"\\n"),
        ("é", r"\xe9"),
        ("\u1234", r"\u1234"),
        ("😀", r"\U0001f600"),
        ("·", r"\xb7"),
        ("</s>", "</s>"),
        ("", '""'),
        ("abcdefghijkl", "abcdefghijkl"),
        ("abcdefghijklm", "abcdefghijk…"),
        ("漢字漢字", r"\u6f22…"),
    ],
)
def test_a_token_is_labelled_by_what_it_is(token, label):
    assert shown(token) == label


def test_every_ascii_character_that_can_be_seen_is_shown_as_itself():
    seen = [chr(code) for code in range(33, 127) if chr(code) != "\\"]
    assert [shown(character) for character in seen] == seen
