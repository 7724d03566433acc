"""Every filter against the plainest numpy, and what is drawn against the distribution it should follow."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.errors import UserError
from transformer.inference.sampling import (
    Sampling,
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    next_token,
    penalize_repetition,
)

NAN, INFINITY = float("nan"), float("inf")
LEVELS = st.integers(-40, 40).map(lambda n: n / 8)  # few values, so that ties are common
LOGITS = st.lists(LEVELS, min_size=1, max_size=17)


def vector(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def softmax(logits: list[float]) -> np.ndarray:
    powers = np.exp(np.array(logits) - max(logits))
    return powers / powers.sum()


def ranked(values: list[float]) -> list[int]:
    """Indices from the largest value to the smallest, the first of equals first."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))


def draw(logits: list[float], *, seed: int = 0, used: list[int] | None = None, **sampling: object) -> int:
    return next_token(torch.tensor(logits), used or [], Sampling(**sampling), torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(LOGITS, st.integers(1, 20))
def test_top_k_keeps_exactly_the_k_largest_and_the_first_of_equals(logits: list[float], k: int) -> None:
    kept = set(ranked(logits)[:k])
    expected = [value if i in kept else -math.inf for i, value in enumerate(logits)]
    assert keep_top_k(vector(logits), k).tolist() == expected


@settings(deadline=None)
@given(LOGITS, st.floats(0, 1))
def test_top_p_keeps_the_fewest_likeliest_tokens_that_reach_p(logits: list[float], p: float) -> None:
    probabilities = softmax(logits)
    result = keep_top_p(torch.from_numpy(probabilities), p).numpy()
    order = ranked(probabilities.tolist())
    n_kept = int((result > 0).sum())
    assert {i for i in range(len(logits)) if result[i] > 0} == set(order[:n_kept])
    assert (result[order[:n_kept]] == probabilities[order[:n_kept]]).all()
    exact = [Fraction(float(probabilities[i])) for i in order]
    assert sum(exact[:n_kept]) >= Fraction(p) - Fraction(1, 10**12)
    assert n_kept == 1 or sum(exact[: n_kept - 1]) < Fraction(p) + Fraction(1, 10**12)


@settings(deadline=None)
@given(LOGITS, st.floats(0, 1))
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(logits: list[float], min_p: float) -> None:
    probabilities = softmax(logits)
    expected = np.where(probabilities >= min_p * probabilities.max(), probabilities, 0.0)
    assert (keep_min_p(torch.from_numpy(probabilities), min_p).numpy() == expected).all()


@settings(deadline=None)
@given(LOGITS, st.lists(st.integers(0, 16)), st.floats(0.1, 10))
def test_the_penalty_makes_used_tokens_less_likely_whatever_their_sign(
    logits: list[float], used: list[int], penalty: float
) -> None:
    used = [token for token in used if token < len(logits)]
    expected = list(logits)
    for token in set(used):
        expected[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    assert penalize_repetition(vector(logits), used, penalty).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("penalty", [5e-324, 1e-320, 1e308])
def test_an_extreme_penalty_stays_finite(penalty: float) -> None:
    assert penalize_repetition(vector([3.0, -2.0, 0.5]), [0, 1], penalty).isfinite().all()


@settings(deadline=None)
@given(LOGITS, st.sampled_from([0.1, 0.7, 1.0, 3.0]))
def test_the_temperature_divides_logits(logits: list[float], temperature: float) -> None:
    expected = softmax([value / temperature for value in logits])
    result = apply_temperature(vector(logits), temperature).softmax(dim=-1).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_of_a_model_that_diverged_are_refused(value: float, temperature: float) -> None:
    with pytest.raises(UserError, match="no number"):
        next_token(torch.tensor([0.0, value, 1.0]), [], Sampling(temperature=temperature), torch.Generator())


def test_temperature_0_takes_the_first_of_the_likeliest() -> None:
    assert all(draw([1.0, 3.0, 3.0, 2.0], seed=seed, temperature=0.0) == 1 for seed in range(20))


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-12])
def test_a_tiny_temperature_draws_only_the_likeliest(temperature: float) -> None:
    drawn = {draw([1.0, 3.0, -1e4, 2.9], seed=seed, temperature=temperature, top_k=3) for seed in range(30)}
    assert drawn == {1}
    ties = Counter(draw([3.0, 1.0, 3.0], seed=seed, temperature=temperature) for seed in range(300))
    assert ties.keys() == {0, 2}
    assert ties[0] == pytest.approx(150, abs=40)


def test_a_huge_temperature_draws_every_token_alike_but_those_that_are_filtered_out() -> None:
    counts = Counter(draw([1e4, -1e4, 0.0, 5.0], seed=seed, temperature=1e300, top_k=3) for seed in range(900))
    assert counts.keys() == {0, 2, 3}
    assert all(count == pytest.approx(300, abs=60) for count in counts.values())


def test_a_top_k_beyond_the_vocabulary_keeps_everything() -> None:
    for seed in range(20):
        assert draw([1.0, 2.0, 0.5], seed=seed, top_k=1000) == draw([1.0, 2.0, 0.5], seed=seed)


def test_top_p_0_and_min_p_1_take_the_likeliest_and_top_p_1_and_min_p_0_keep_everything() -> None:
    logits = [0.0, 0.1, 0.2, 0.05]
    for seed in range(20):
        assert draw(logits, seed=seed, top_p=0.0) == draw(logits, seed=seed, min_p=1.0) == 2
        assert draw(logits, seed=seed, top_p=1.0, min_p=0.0) == draw(logits, seed=seed)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -0.1),
        ("temperature", NAN),
        ("temperature", INFINITY),
        ("top_k", 0),
        ("top_k", -3),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_p", NAN),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", NAN),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", NAN),
        ("repetition_penalty", INFINITY),
    ],
)
def test_a_setting_out_of_its_range_is_named_with_its_value(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{setting} must .*, not {value}"):
        Sampling(**{setting: value})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_the_softmax_says(temperature: float) -> None:
    logits, n = [0.3, -1.0, 2.0, 0.0, 1.1], 2000
    generator = torch.Generator().manual_seed(7)
    counts = Counter(
        next_token(torch.tensor(logits), [], Sampling(temperature=temperature), generator) for _ in range(n)
    )
    expected = n * softmax([value / temperature for value in logits])
    chi_square = sum((counts[i] - expected[i]) ** 2 / expected[i] for i in range(5))
    assert chi_square < 18.5  # 4 degrees of freedom: one in a thousand exceeds it


def test_filters_apply_in_their_documented_order() -> None:
    """penalty, top-k, temperature, top-p, min-p, each on the outcome of the one before."""
    logits = [4.0, 3.0, 2.5, 2.0, 1.0, 0.0]
    penalized = [1.0, 3.0, 2.5, 2.0, 1.0, 0.0]  # token 0 was used: 4 / 4
    kept = [1, 2, 3]  # top_k
    warm = softmax([penalized[i] / 2.0 for i in kept])  # about .42 .33 .25
    assert warm[:2].sum() > 0.74 > warm[0]
    assert warm[1] / warm[0] < 0.8 < warm[1] / warm[0] + 0.1
    settings_of_all = {"repetition_penalty": 4.0, "top_k": 3, "temperature": 2.0, "top_p": 0.74}
    without_min_p = {draw(logits, seed=seed, used=[0], **settings_of_all) for seed in range(200)}
    with_min_p = {draw(logits, seed=seed, used=[0], min_p=0.8, **settings_of_all) for seed in range(50)}
    assert without_min_p == {1, 2}
    assert with_min_p == {1}


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=17),
    st.sampled_from([0.0, 1e-300, 0.7, 1e300]),
    st.one_of(st.none(), st.integers(1, 20)),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_any_settings_draw_a_token(
    logits: list[float], temperature: float, top_k: int | None, top_p: float, min_p: float
) -> None:
    token = draw(logits, used=[0], temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert 0 <= token < len(logits)


def test_a_seed_draws_the_same_and_the_logits_are_left_alone() -> None:
    logits = torch.linspace(-1, 1, 97)
    before = logits.clone()
    drawn = [next_token(logits, [3], Sampling(top_k=50), torch.Generator().manual_seed(seed)) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]
    assert torch.equal(logits, before)
