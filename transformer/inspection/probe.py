"""What a model's heads are measured on, and the measurement: scores, how sure they are, and what they mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer.files import FORMAT
from transformer.inspection.capture import capture
from transformer.inspection.scores import (
    AttentionScore,
    copy_gap,
    copying,
    current_token,
    distance,
    duplicate_token,
    entropy,
    first_token,
    in_context,
    induction,
    knockout,
    max_logit,
    previous_token,
    token_losses,
)
from transformer.model.transformer import Transformer, eval_mode

REPEAT_ROWS = 32
SHORTEST_PERIOD = 8

KNOCKOUT_TOKENS, MIN_KNOCKOUT_ROWS = 256, 4
"""`knockout` is measured on the first rows of the text that make up so many tokens, and on so many rows at least.

A token costs it about L·H/2 passes through the model, all other scores together one. Few tokens suffice because both
losses are of the same ones, and rows are never shortened: a head that looks far back would pass for dead. With four
rows an interval is rough, and rather too narrow than too wide.
"""

ON_REPEATS = (previous_token, duplicate_token, induction)
ON_TEXT = (entropy, distance, current_token, first_token)
NAMES = (
    "entropy",
    "distance",
    "previous_token",
    "current_token",
    "first_token",
    "duplicate_token",
    "induction",
    "copying",
    "max_logit",
    "knockout",
)
"""Every score of a head, in the order of a measurement."""

RESAMPLES = 1000
CONFIDENCE = 0.95
HABIT = 0.5
"""A head that certainly gives half of its weight to one thing is named after it."""
DIFFUSE = 0.95
"""Entropy above which a head looks at everything alike."""
DEAD = 0.001
"""Change of loss, in nats, below which nobody misses a head."""
HABITS = {
    "previous-token": "previous_token",
    "induction": "induction",
    "duplicate": "duplicate_token",
    "sink": "first_token",
}
BADGES = (*HABITS, "diffuse", "dead")

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """Token ids (int64) that are chosen once a run, so that its measurements can be compared."""

    sentence: Tensor
    """The tokens that are drawn (T,)."""
    repeats: Tensor
    """Rows [r r r …] of distinct random tokens, each with its own period: (R, T)."""
    periods: tuple[int, ...]
    """Length of r in each row of `repeats`."""
    text: Tensor
    """Rows of validation text, or of the task: (N, T)."""


@dataclass(frozen=True)
class Measurement:
    """Scores of every head at one moment. What cannot be measured is NaN."""

    scores: dict[str, Numbers]
    """(L, H) each, one for each of NAMES."""
    interval: dict[str, Numbers]
    """95 % interval (L, H, 2) of those scores that are means over rows."""
    badges: list[list[list[str]]]
    """What is certain of each head: [layer][head] -> some of BADGES."""
    copy_gap: float
    in_context: float

    def line(self, step: int, seconds: float) -> dict[str, object]:
        """As JSON, with the time that measuring took; what is not finite becomes null."""
        return {
            "format": FORMAT,
            "step": step,
            "scores": {name: _json(values.tolist()) for name, values in self.scores.items()},
            "interval": {name: _json(values.tolist()) for name, values in self.interval.items()},
            "badges": self.badges,
            "copy_gap": _json(self.copy_gap),
            "in_context": _json(self.in_context),
            "seconds": seconds,
        }


@dataclass(frozen=True)
class Rows:
    """One score, row by row: sums (N, L, H) and numbers (N,) of what it is the mean of."""

    sums: Numbers
    counts: Numbers


def make_repeats(vocab_size: int, length: int, seed: int, *, rows: int = REPEAT_ROWS) -> tuple[Tensor, tuple[int, ...]]:
    """Rows [r r r …] (rows, length) int64 of distinct random tokens, and each row's period.

    Periods are spread evenly over 8 … length/2, so that attention to a fixed offset does not pass for induction; a
    short row or a small vocabulary takes the longest periods that it can, down to 1.
    """
    longest = max(1, min(length // 2, vocab_size))
    periods = np.linspace(min(SHORTEST_PERIOD, longest), longest, rows).round().astype(int).tolist()
    rng = np.random.default_rng(seed)
    repeats = [rng.choice(vocab_size, period, replace=False)[np.arange(length) % period] for period in periods]
    return torch.tensor(np.array(repeats, dtype=np.int64)), tuple(periods)


def baseline(probe: Probe) -> dict[str, float]:
    """What a head that looks at all of its past alike would score; absent where that means nothing."""
    values = {score.name: score.uniform(probe.repeats) for score in ON_REPEATS}
    values |= {score.name: score.uniform(probe.text) for score in ON_TEXT}
    return {name: values[name] for name in NAMES if name in values and math.isfinite(values[name])}


def measure(model: Transformer, probe: Probe) -> Measurement:
    """Every score of every head, its interval over rows, and what is certain. The model is left as it was found.

    The probe is on the model's device. Raises ValueError where a row exceeds the model's context.
    """
    return measure_attention(model, probe, missed=miss_heads(model, probe))


def miss_heads(model: Transformer, probe: Probe) -> Rows:
    """What `knockout` is the mean of: it takes about as long as all other scores together, or several times that."""
    missed = _numbers(knockout(model, probe.text[: max(MIN_KNOCKOUT_ROWS, KNOCKOUT_TOKENS // probe.text.shape[1])]))
    return Rows(missed, np.ones(len(missed)))


def measure_attention(model: Transformer, probe: Probe, *, missed: Rows | None = None) -> Measurement:
    """The same, but `knockout` is made of what `miss_heads` gave, or is not measured."""
    text = probe.text
    rows, repeat_losses, _ = _read(model, probe.repeats, ON_REPEATS)
    text_rows, text_losses, largest_logit = _read(model, text, ON_TEXT)
    rows |= text_rows | {
        "knockout": Rows(np.full_like(largest_logit, np.nan)[None], np.ones(1)) if missed is None else missed
    }
    with np.errstate(invalid="ignore"):  # 0/0 where no query is eligible is NaN, as it should be
        scores = {name: row.sums.sum(axis=0) / row.counts.sum() for name, row in rows.items()}
        interval = {name: bootstrap(rows[name], seed=0) for name in NAMES if name in rows}
    scores |= {"copying": _numbers(copying(model)), "max_logit": largest_logit}
    return Measurement(
        scores={name: scores[name] for name in NAMES},
        interval=interval,
        badges=badges(interval),
        copy_gap=copy_gap(repeat_losses, probe.periods),
        in_context=in_context(text_losses),
    )


def bootstrap(rows: Rows, *, seed: int) -> Numbers:
    """Percentile interval of the mean over rows drawn with replacement: (L, H, 2); NaN for a single row."""
    n_rows, shape = len(rows.counts), rows.sums.shape[1:]
    if n_rows < 2:
        return np.full((*shape, 2), np.nan)
    drawn = np.random.default_rng(seed).integers(n_rows, size=(RESAMPLES, n_rows))
    flat = (drawn + np.arange(RESAMPLES)[:, None] * n_rows).ravel()
    times = np.bincount(flat, minlength=RESAMPLES * n_rows).reshape(RESAMPLES, n_rows).astype(np.float64)
    means = times @ rows.sums.reshape(n_rows, -1) / (times @ rows.counts)[:, None]
    tail = (1 - CONFIDENCE) / 2
    ends = np.quantile(means, [tail, 1 - tail], axis=0)
    return np.moveaxis(ends, 0, -1).reshape(*shape, 2)


def badges(interval: dict[str, Numbers]) -> list[list[list[str]]]:
    """What an interval leaves no doubt about: [layer][head] -> names."""
    holds: dict[str, npt.NDArray[np.bool_]] = {
        **{badge: interval[name][..., 0] >= HABIT for badge, name in HABITS.items()},
        "diffuse": interval["entropy"][..., 0] >= DIFFUSE,
        "dead": np.all(np.abs(interval["knockout"]) <= DEAD, axis=-1),
    }
    n_layers, n_heads = holds["dead"].shape
    return [
        [[badge for badge in BADGES if holds[badge][layer, head]] for head in range(n_heads)]
        for layer in range(n_layers)
    ]


def _read(model: Transformer, ids: Tensor, scores: Sequence[AttentionScore]) -> tuple[dict[str, Rows], Tensor, Numbers]:
    """Scores row by row, losses (N, T−1), and the largest logits (L, H), in one pass over ids (N, T)."""
    n_layers, shape = model.config.n_layers, (len(ids), model.config.n_layers, model.config.n_heads)
    sums = torch.zeros(len(scores), *shape, device=ids.device)
    counts = torch.zeros(len(scores), len(ids), device=ids.device)
    largest = torch.zeros(shape, device=ids.device)
    losses = []
    for seen in capture(model, ids):
        part = ids[seen.rows]
        for index, score in enumerate(scores):
            sums[index, seen.rows, seen.layer], counts[index, seen.rows] = score.rows(seen.weights, part)
        largest[seen.rows, seen.layer] = max_logit(seen.logits, seen.visible)
        if seen.layer == n_layers - 1:
            with eval_mode(model):
                losses.append(token_losses(model, seen.output, part))
    rows = {score.name: Rows(*pair) for score, *pair in zip(scores, _numbers(sums), _numbers(counts), strict=True)}
    return rows, torch.cat(losses), _numbers(largest.amax(dim=0))


def _numbers(values: Tensor) -> Numbers:
    return values.cpu().double().numpy()


def _json(value: object) -> object:
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value if isinstance(value, float) and math.isfinite(value) else None
