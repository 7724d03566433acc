"""`attn heads`: what each attention head of a run does, measured, with how sure that is."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.run_arguments import open_model
from cli.run_heads import measure_run, probe_of_run
from cli.terminal import dim, say
from transformer.inspection.probe import NAMES
from transformer.inspection.record import Report

COLUMNS = {
    "previous_token": "previous",
    "induction": "induction",
    "duplicate_token": "duplicate",
    "first_token": "first",
    "current_token": "current",
    "entropy": "entropy",
    "distance": "distance",
    "copying": "copying",
    "max_logit": "max logit",
    "knockout": "knock-out",
}
"""Scores in the order of the table, and their heading there."""

WIDTH = 11


@dataclass(frozen=True)
class Head:
    """One head, with every number that is known of it; None where nothing could be measured."""

    layer: int
    head: int
    scores: dict[str, float | None]
    baseline: dict[str, float]
    interval: dict[str, tuple[float | None, float | None]]
    badges: list[str]
    knockout: float | None


def heads(run: str | None, *, checkpoint: str, device: str, as_json: bool, runs: Path) -> None:
    """Measure the heads of a run and write them to stdout: a table, or a JSON list."""
    opened = open_model(run, checkpoint, device, runs)
    stored = probe_of_run(opened)
    report = measure_run(opened, stored)
    measured = list_heads(report, stored.baseline)
    if as_json:
        sys.stdout.write(json.dumps([vars(head) for head in measured], indent=2, allow_nan=False) + "\n")
        return
    say(dim(f"{opened.folder.name}, checkpoint of step {opened.step}"))
    sys.stdout.write(table(measured, stored.baseline) + "\n")
    sys.stdout.write(model_lines(report, opened.model.vocab_size, len(stored.text[0])))
    say(dim("\nAttention weights are not explanations: a strong pattern whose knock-out changes nothing does no work."))


def list_heads(report: Report, baseline: Mapping[str, float]) -> list[Head]:
    """Every head of a measurement, layer by layer."""
    return [
        Head(
            layer=layer,
            head=head,
            scores={name: report.scores[name][layer][head] for name in NAMES},
            baseline=dict(baseline),
            interval={name: report.interval[name][layer][head] for name in report.interval},
            badges=badges,
            knockout=report.scores["knockout"][layer][head],
        )
        for layer, row in enumerate(report.badges)
        for head, badges in enumerate(row)
    ]


def table(heads: Sequence[Head], baseline: Mapping[str, float]) -> str:
    """Two lines a head, its scores and below them the interval; at the end what a uniform head would score."""
    lines = [_row("head", COLUMNS.values(), "badges")]
    for head in heads:
        lines.append(
            _row(f"{head.layer}.{head.head}", (_number(head.scores[name]) for name in COLUMNS), ", ".join(head.badges))
        )
        lines.append(_row("", (_range(head.interval.get(name)) for name in COLUMNS)))
    lines.append(_row("uniform", (_number(baseline.get(name)) for name in COLUMNS)))
    return "\n".join(lines) + "\n"


def model_lines(report: Report, vocab_size: int, n_tokens: int) -> str:
    """What is measured of the whole model, in words."""
    return (
        f"copy gap    {_number(report.copy_gap)} nats: how much better repeated random tokens are predicted than new "
        f"ones; 0 untrained, towards log V = {math.log(vocab_size):.2f} where copying works\n"
        f"in context  {_number(report.in_context)} nats: loss at the end of {n_tokens} tokens less that near their "
        "start; negative where a longer past helps\n"
    )


def _row(head: str, cells: Iterable[str], badges: str = "") -> str:
    return (f"{head:<8}" + "".join(f"{cell:>{WIDTH}}" for cell in cells) + f"  {badges}").rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".replace("-0.000", "0.000") if abs(value) < 1000 else f"{value:.3g}"


def _range(interval: tuple[float | None, float | None] | None) -> str:
    if interval is None or None in interval:
        return ""
    low, high = interval
    return f"{low:.2f}…{high:.2f}"
