"""Positional encodings against their papers' formulas."""

import cmath
import math

import pytest
import torch

from transformer.model.config import ModelConfig
from transformer.model.positions import Alibi, Rotary, Sinusoidal, alibi_slopes, position_encoding, rotate

CONFIG = ModelConfig(d_model=12, n_heads=2, context_length=17)
PLACES = torch.arange(17)[None]


def test_sinusoids_follow_the_papers_formula() -> None:
    table = Sinusoidal(CONFIG).embed(PLACES)[0]
    for place in range(17):
        for i in range(6):
            angle = place / 10_000 ** (2 * i / 12)
            assert table[place, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[place, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_an_odd_width_has_sinusoids_too() -> None:
    config = ModelConfig(d_model=7, n_heads=1, context_length=5, position="sinusoidal")
    assert Sinusoidal(config).embed(torch.arange(5)[None]).shape == (1, 5, 7)


def test_rotary_is_multiplication_by_a_unit_complex_number() -> None:
    x = torch.randn(1, 1, 17, 6)
    turned = rotate(x, Rotary(CONFIG).rotation(PLACES))
    for place in range(17):
        for i in range(3):
            number = complex(x[0, 0, place, i], x[0, 0, place, i + 3])
            number *= cmath.exp(1j * place * 10_000 ** (-i / 3))
            assert turned[0, 0, place, i].item() == pytest.approx(number.real, abs=1e-5)
            assert turned[0, 0, place, i + 3].item() == pytest.approx(number.imag, abs=1e-5)


def test_a_rotary_product_depends_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, 1, 6), torch.randn(1, 1, 1, 6)
    rotary = Rotary(CONFIG)

    def product(at: int, other: int) -> float:
        turned = [rotate(x, rotary.rotation(torch.tensor([[p]]))) for x, p in ((query, at), (key, other))]
        return float((turned[0] * turned[1]).sum())

    assert product(3, 1) == pytest.approx(product(16, 14), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_are_the_papers_for_any_number_of_heads(n_heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(n_heads) == [2.0**-exponent for exponent in exponents]


def test_alibi_lowers_logits_in_proportion_to_the_distance() -> None:
    bias = Alibi(CONFIG).bias(torch.tensor([[4]]), torch.tensor([[0, 3, 4]]))
    assert bias.tolist() == [[[[-4 / 16, -1 / 16, 0.0]], [[-4 / 256, -1 / 256, 0.0]]]]


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_every_name_of_the_configuration_has_an_encoding(name: str) -> None:
    encoding = position_encoding(CONFIG.model_copy(update={"position": name}))
    acts = [encoding.embed(PLACES), encoding.rotation(PLACES), encoding.bias(PLACES, PLACES)]
    assert sum(effect is not None for effect in acts) == (0 if name == "none" else 1)
