"""When attention is looked at while a model trains, and how that stays a small part of the run's time."""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Literal

Kind = Literal["knock-outs", "scores", "score pictures", "maps", "pictures"]

KINDS: tuple[Kind, ...] = ("knock-outs", "scores", "score pictures", "maps", "pictures")
"""In this order at a step: scores take the knock-outs in, and maps never lack scores that were measured with them."""

WITH_SCORES: tuple[Kind, ...] = ("knock-outs", "score pictures")
"""What is done only where scores are measured."""

MAX_SHARE, AIM = 0.02, 0.012
"""Of a run's time that looking at attention may take, and what is planned: not everything can be foreseen."""

FREE_SECONDS = 0.25
"""Looking that takes less than this in all is never made rarer: nobody notices it, and clocks are coarse."""

NEGLIGIBLE = 0.3
"""A kind that needs less of what is allowed is never made rarer, since that would not help."""

DISPENSABLE: dict[Kind, float] = {"knock-outs": 2, "scores": 1, "score pictures": 4, "maps": 1, "pictures": 2}
"""What goes first of two kinds that take as long: charts and films say more than single pictures do."""

REMEMBERED = 101
"""Recent durations whose median is what the next is expected to take."""


STRETCH = 25
"""Steps from which on looks are evenly spaced in log time; before, they are evenly spaced in time."""


def spread_steps(max_steps: int, count: int) -> tuple[int, ...]:
    """At most `count` steps of 0 … max_steps, both ends among them: ever further apart, evenly in log(step + STRETCH).

    A count of 1 gives the last step alone. Where even steps would be the same whole number, the next free one is
    taken, so there are fewer than `count` only where the run has fewer.
    """
    count = min(count, max_steps + 1)
    if count <= 1:
        return (max_steps,) * count
    growth = (max_steps / STRETCH + 1) ** (1 / (count - 1))
    return tuple(max(i, round(STRETCH * (growth**i - 1))) for i in range(count))


class Schedule:
    """When attention is looked at: as planned, and less often where that would take too much of the run's time."""

    def __init__(self, plan: Mapping[Kind, Iterable[int]], *, last_step: int) -> None:
        """`plan` has the steps of each kind, `last_step` is that of the run."""
        self.left = {kind: deque(sorted(plan[kind])) for kind in KINDS}
        self.wanted = [kind for kind in KINDS if self.left[kind]]
        self.last_step = last_step
        self._done: dict[Kind, int] = {}
        self._spent = self._trained = 0.0
        self._steps = Durations()
        self._costs = {kind: Durations() for kind in KINDS}

    def trained(self, seconds: float) -> None:
        """A step of training took so long."""
        self._trained += seconds
        self._steps.add(seconds)

    def spent(self, kind: Kind, step: int, seconds: float) -> None:
        """Looking took so long."""
        self._spent += seconds
        self._costs[kind].add(seconds)
        self._done[kind] = step

    def due(self, step: int) -> list[Kind]:
        """What is to be done after a step; steps come in their order."""
        for steps in self.left.values():
            while steps and steps[0] < step:
                steps.popleft()
        return [kind for kind, steps in self.left.items() if steps and steps[0] == step]

    def due_at_end(self, step: int) -> list[Kind]:
        """What is to be done where a run ends: everything that is done at all, unless it was done just now."""
        due = [kind for kind in self.wanted if self._done.get(kind) != step]
        return due if "scores" in due else [kind for kind in due if kind not in WITH_SCORES]

    def thin_out(self, step: int) -> str | None:
        """Where the rest of the plan would take too long, drop every second step but the last; says so in a line."""
        before = {kind: len(steps) for kind, steps in self.left.items()}
        whole = self._trained + (self.last_step - step) * self._steps.usual()
        allowed = max(FREE_SECONDS, AIM * whole)
        while self._spent + sum(map(self._expected, KINDS)) > allowed:
            worth = [kind for kind in KINDS if len(self.left[kind]) > 1 and self._expected(kind) > NEGLIGIBLE * allowed]
            if not worth:
                break
            first = max(worth, key=lambda kind: self._expected(kind) * DISPENSABLE[kind])
            self.left[first] = deque(every_second(self.left[first]))
            measured = set(self.left["scores"])
            for kind in WITH_SCORES:
                self.left[kind] = deque(one for one in self.left[kind] if one in measured)
        rarer = [
            f"{kind} {len(steps)} more (not {before[kind]})"
            for kind, steps in self.left.items()
            if len(steps) < before[kind]
        ]
        if not rarer:
            return None
        words = f"attention is looked at less often, to stay within {MAX_SHARE:.0%} of the run"
        return f"step {step} · {words}: {', '.join(rarer)}"

    def _expected(self, kind: Kind) -> float:
        """Seconds that the rest of a kind will take."""
        return len(self.left[kind]) * self._costs[kind].usual()


class Durations:
    """How long something took, over and over. The first time takes longest: it counts half, and only at first."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._later: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, seconds: float) -> None:
        """It took so long."""
        if self._first is None:
            self._first = seconds
        else:
            self._later.append(seconds)

    def usual(self) -> float:
        """Seconds that it takes; 0 until something is known."""
        return median(self._later) if self._later else (self._first or 0.0) / 2


def every_second(steps: Iterable[int]) -> list[int]:
    """Every second of some steps, the last among them."""
    return list(steps)[::-2][::-1]
