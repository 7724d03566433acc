"""When attention is looked at: as planned where that is cheap, and less often where it is dear. On a made-up clock."""

import re
from itertools import pairwise

import numpy as np
import pytest

from cli.inspection_schedule import FREE_SECONDS, KINDS, STRETCH, Kind, Schedule, every_second, spread_steps


@pytest.fixture(autouse=True)
def as_shipped(monkeypatch):
    monkeypatch.setattr("cli.inspection_schedule.FREE_SECONDS", FREE_SECONDS)


def at_every_step(*kinds: Kind, last: int = 1000) -> Schedule:
    return Schedule({kind: range(last + 1) if kind in kinds else [] for kind in KINDS}, last_step=last)


def pretend(
    schedule: Schedule, *, step_seconds: float, costs: dict[Kind, float], first: float = 1.0
) -> tuple[dict[Kind, list[int]], list[str]]:
    """Go through a run on a clock that is only thought of; returns the steps of each kind, and what was said."""
    done: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    said = []
    for step in range(schedule.last_step + 1):
        if step > 0:
            schedule.trained(step_seconds * (first if step == 1 else 1))
        if schedule.due(step):
            said += [schedule.thin_out(step)]
        for kind in schedule.due(step):
            schedule.spent(kind, step, costs[kind] * (first if step == 0 else 1))
            done[kind].append(step)
    return done, [line for line in said if line is not None]


@pytest.mark.parametrize("first", [1.0, 30.0])
def test_what_is_cheap_is_done_as_planned(first):
    done, said = pretend(at_every_step("scores"), step_seconds=1.0, costs={"scores": 0.011}, first=first)
    assert said == []
    assert done["scores"] == list(range(1001))


@pytest.mark.parametrize("cost", [0.03, 0.2, 2.0])
def test_what_is_dear_is_done_less_often_and_stays_within_the_share(cost):
    done, said = pretend(at_every_step("scores"), step_seconds=1.0, costs={"scores": cost})
    assert 0.005 * 1000 < cost * len(done["scores"]) <= 0.02 * 1000 + cost
    assert (done["scores"][0], done["scores"][-1]) == (0, 1000)
    assert len(set(np.diff(done["scores"][3:]).tolist())) == 1  # evenly
    assert len(said) == 1
    assert re.fullmatch(
        r"step [12] · attention is looked at less often, to stay within 2% of the run: scores \d+ more \(not \d+\)",
        said[0],
    )


def test_what_costs_little_is_not_sacrificed_for_what_costs_much():
    costs: dict[Kind, float] = {"scores": 3.0, "maps": 0.0005, "pictures": 0.0}
    done, said = pretend(at_every_step("scores", "maps"), step_seconds=1.0, costs=costs)
    assert len(done["maps"]) == 1001
    assert len(done["scores"]) < 10
    assert len(said) == 1


def test_a_run_that_becomes_faster_says_so_a_few_times_at_most():
    schedule, said, spent = at_every_step("scores"), [], 0.0
    for step in range(1001):
        schedule.trained(1.0 / (1 + step / 50))
        if schedule.due(step):
            said += [schedule.thin_out(step)]
        for kind in schedule.due(step):
            schedule.spent(kind, step, 0.02)
            spent += 0.02
    assert 1 <= len([line for line in said if line]) <= 6


def test_a_first_time_that_is_slow_decides_nothing():
    done, _ = pretend(at_every_step("scores"), step_seconds=0.1, costs={"scores": 0.001}, first=500.0)
    assert len(done["scores"]) == 1001


def test_what_is_too_dear_is_done_at_both_ends():
    done, said = pretend(at_every_step("scores", "maps"), step_seconds=0.1, costs={"scores": 1.0, "maps": 0.0})
    assert done["scores"] == [0, 1000]
    assert len(done["maps"]) == 1001
    assert len(said) == 1


def test_scores_are_drawn_and_heads_knocked_out_only_where_scores_are_measured():
    costs: dict[Kind, float] = {"knock-outs": 0.0, "scores": 0.4, "score pictures": 0.001, "maps": 0.0, "pictures": 0.0}
    done, _ = pretend(at_every_step(*KINDS), step_seconds=1.0, costs=costs)
    assert done["score pictures"] == done["knock-outs"] == done["scores"]
    assert len(done["pictures"]) == 1001


def test_very_short_runs_are_looked_at_as_planned():
    done, said = pretend(at_every_step("scores", last=10), step_seconds=0.001, costs={"scores": 0.02})
    assert said == []
    assert done["scores"] == list(range(11))


@pytest.mark.parametrize("count", range(1, 12))
def test_every_second_step_keeps_the_last(count):
    steps = list(range(100, 100 + count))
    assert every_second(steps) == [step for step in steps if (steps[-1] - step) % 2 == 0]


@pytest.mark.parametrize("max_steps", [0, 1, 2, 3, 9, 10, 11, 97, 2_000, 600_000, 10**12])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 10])
def test_spread_steps_ascend_from_0_to_the_last(max_steps, count):
    steps = spread_steps(max_steps, count)
    assert len(steps) == min(count, max_steps + 1)
    assert all(a < b for a, b in pairwise(steps))
    assert steps[-1:] == ((max_steps,) if count else ())
    assert count < 2 or steps[0] == 0


def test_spread_steps_are_evenly_spaced_in_log_time_after_a_beginning():
    ratios = np.diff(np.log(np.array(spread_steps(10**9, 10)) + STRETCH))
    assert ratios == pytest.approx(ratios.mean(), rel=0.1)
