import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.small_runs import small_config, small_trainer
from transformer.training.config import TrainingConfig
from transformer.training.loop import Step
from transformer.training.schedule import rate_factor, warmup_steps


def factors(**changes: object) -> list[float]:
    config = TrainingConfig(**changes)
    return [rate_factor(step, config) for step in range(config.max_steps)]


def test_a_constant_rate_rises_and_stays() -> None:
    assert factors(max_steps=7, warmup_steps=3, schedule="constant") == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 1])


def test_a_linear_rate_falls_in_equal_parts_to_what_the_step_after_the_last_would_get() -> None:
    expected = [1 / 3, 2 / 3, 5 / 5, 4 / 5, 3 / 5, 2 / 5, 1 / 5]
    assert factors(max_steps=7, warmup_steps=2, schedule="linear") == pytest.approx(expected)


def test_a_linear_rate_ends_at_its_minimum() -> None:
    expected = [1.0, 0.8, 0.6, 0.4]  # the fifth would be 0.2
    got = factors(max_steps=4, warmup_steps=0, schedule="linear", learning_rate=0.01, min_learning_rate=0.002)
    assert got == pytest.approx(expected)


def test_a_cosine_rate_follows_half_a_wave() -> None:
    changes = {"max_steps": 11, "warmup_steps": 0, "learning_rate": 0.1, "min_learning_rate": 0.03}
    expected = [0.3 + 0.7 * math.cos(math.pi * step / 22) ** 2 for step in range(11)]
    assert factors(schedule="cosine", **changes) == pytest.approx(expected)


@settings(deadline=None)
@given(
    max_steps=st.integers(1, 60),
    warmup=st.floats(0, 1, exclude_max=True),
    minimum=st.floats(0, 1),
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
)
def test_every_rate_is_above_zero_and_rises_before_it_falls(
    max_steps: int, warmup: float, minimum: float, schedule: str
) -> None:
    minimum = 0.0 if schedule == "constant" else minimum
    n_warmup = int(warmup * max_steps)
    rates = factors(
        max_steps=max_steps,
        warmup_steps=n_warmup,
        schedule=schedule,
        learning_rate=1.0,
        min_learning_rate=minimum,
    )
    assert all(max(0.0, minimum * (step >= n_warmup)) <= rate <= 1.0 + 1e-12 for step, rate in enumerate(rates))
    assert min(rates) > 0
    assert rates[:n_warmup] == sorted(rates[:n_warmup])
    assert rates[n_warmup:] == sorted(rates[n_warmup:], reverse=True)
    assert rates[n_warmup] == pytest.approx(1.0)


@pytest.mark.parametrize(("max_steps", "expected"), [(0, 0), (1, 0), (19, 0), (20, 1), (2000, 100)])
def test_the_warmup_is_a_twentieth_of_the_run_unless_it_is_given(max_steps: int, expected: int) -> None:
    assert warmup_steps(TrainingConfig(max_steps=max_steps)) == expected


def test_a_run_of_one_step_uses_the_peak_rate() -> None:
    for schedule in ("constant", "linear", "cosine"):
        assert factors(max_steps=1, schedule=schedule) == [1.0]
    assert factors(max_steps=0) == []


@pytest.mark.parametrize("given_rate", [None, 0.003])
def test_the_logged_rate_is_the_one_that_the_optimizers_use(tmp_path: Path, given_rate: float | None) -> None:
    config = small_config(
        max_steps=7, warmup_steps=2, learning_rate=0.01, muon_learning_rate=given_rate, schedule="cosine"
    )
    trainer = small_trainer(tmp_path, config)
    used: list[list[float]] = [[], []]
    for optimizer, rates in zip(trainer.optimizers, used, strict=True):
        optimizer.register_step_pre_hook(
            lambda its, *_, rates=rates: rates.extend({group["lr"] for group in its.param_groups})
        )
    logged = [event.learning_rate for event in trainer.run() if isinstance(event, Step)]
    assert used[0] == logged
    assert used[1] == pytest.approx([rate * ((given_rate or 0.05) / 0.01) for rate in logged])
    assert logged[0] == pytest.approx(0.01 / 3)
    assert len(set(logged)) == 7
