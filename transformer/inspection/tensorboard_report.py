"""A measurement of the heads and the attention of a sentence, as TensorBoard's charts and pictures."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from transformer.inspection.heatmap import draw_layer
from transformer.inspection.probe import Measurement
from transformer.inspection.score_picture import SCALES, draw_score
from transformer.inspection.tensorboard import TensorBoardWriter
from transformer.inspection.tensorboard_tags import (
    BEST_INDUCTION,
    BEST_PREVIOUS_TOKEN,
    COPY_GAP,
    ENTROPY,
    IN_CONTEXT,
    MAP,
    MAX_LOGIT,
    PROBE_SECONDS,
    SCORE,
    SINK_RATE,
    scalar_layout,
    shown_layers,
)


def write_layout(writer: TensorBoardWriter) -> None:
    """Group the charts of a run; once, where it begins."""
    writer.layout(scalar_layout())


def write_measurement(writer: TensorBoardWriter, step: int, measurement: Measurement, *, seconds: float) -> None:
    """Write the charts of a measurement that took so many seconds."""
    writer.scalars(step, measurement_scalars(measurement) | {PROBE_SECONDS: seconds})


def write_score_pictures(
    writer: TensorBoardWriter, step: int, measurement: Measurement, *, baseline: Mapping[str, float]
) -> None:
    """Write one picture a score, [layer x head]; `baseline` is what a uniform head scores, where there is such."""
    writer.pictures(
        step,
        {
            SCORE.format(name): draw_score(name, measurement.scores[name], step=step, baseline=baseline.get(name))
            for name in SCALES
        },
    )


def write_maps(writer: TensorBoardWriter, step: int, weights: np.ndarray, *, tokens: Sequence[str]) -> None:
    """Write one picture a layer: weights (L, H, T, T) from query to key, T tokens."""
    writer.pictures(
        step,
        {
            MAP.format(layer): draw_layer(weights[layer], tokens, layer=layer, step=step)
            for layer in shown_layers(len(weights))
        },
    )


def measurement_scalars(measurement: Measurement) -> dict[str, float]:
    """The numbers of a measurement by tag. Heads that could not be measured do not count; NaN where none could."""
    scores = measurement.scores
    values = {
        BEST_INDUCTION: largest(scores["induction"]),
        BEST_PREVIOUS_TOKEN: largest(scores["previous_token"]),
        COPY_GAP: measurement.copy_gap,
        IN_CONTEXT: measurement.in_context,
        SINK_RATE: mean(scores["first_token"]),
    }
    for layer in shown_layers(len(scores["entropy"])):
        values[ENTROPY.format(layer)] = mean(scores["entropy"][layer])
        values[MAX_LOGIT.format(layer)] = largest(scores["max_logit"][layer])
    return values


def largest(values: np.ndarray) -> float:
    """The largest of those that are numbers, or NaN."""
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else math.nan


def mean(values: np.ndarray) -> float:
    """The mean of those that are numbers, or NaN."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
