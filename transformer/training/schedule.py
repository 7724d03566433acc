"""The learning rate as a pure function of the step."""

import math

from transformer.training.config import TrainingConfig


def rate_factor(step: int, config: TrainingConfig) -> float:
    """Share of the peak rate that update number `step` (from 0) uses; in (0, 1] for every step below max_steps.

    Rises in a straight line over the warmup, then falls to min_learning_rate, which the step after the last one
    would reach.
    """
    warmup = warmup_steps(config)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if config.schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(1, config.max_steps - warmup)
    height = 1.0 - progress if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    floor = config.min_learning_rate / config.learning_rate
    return floor + (1.0 - floor) * height


def warmup_steps(config: TrainingConfig) -> int:
    """Length of the warmup, where the configuration leaves it open a twentieth of the run."""
    return config.max_steps // 20 if config.warmup_steps is None else config.warmup_steps
