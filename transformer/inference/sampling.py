"""From logits to a token: a chain of pure functions on one row of logits (V,)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.errors import UserError

LARGEST_LOGIT = 1e300
"""Where an extreme repetition penalty stops, short of an infinity."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. The filters apply in this order: penalty, top-k, temperature, top-p, min-p.

    temperature:        0 takes the likeliest token (the first of equals); 1 is the model's own distribution
    top_k:              keep the k likeliest tokens; None keeps all
    top_p:              keep the fewest likeliest tokens whose probability reaches p (Holtzman et al. 2019)
    min_p:              keep tokens at least min_p times as likely as the likeliest (Nguyen et al. 2024)
    repetition_penalty: above 1, tokens that were used become less likely (Keskar et al. 2019)

    Raises UserError where a value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be a number of at least 0, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be at least 1, not {self.top_k}; leave it out to keep all tokens")
        if not 0.0 <= self.top_p <= 1.0:
            raise UserError(f"top_p must lie between 0 and 1, not {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise UserError(f"min_p must lie between 0 and 1, not {self.min_p}")
        if not 0.0 < self.repetition_penalty < math.inf:
            raise UserError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")


def next_token(logits: Tensor, used: Sequence[int], sampling: Sampling, generator: torch.Generator) -> int:
    """Draw one token from logits (V,) on the CPU; `used` are the tokens before it.

    Raises UserError where the largest logit is no finite number.
    """
    if not logits.max().isfinite():
        raise UserError("the model predicts what is no number: its training diverged; choose another checkpoint")
    logits = penalize_repetition(logits.double(), used, sampling.repetition_penalty)
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    if sampling.top_k is not None:
        logits = keep_top_k(logits, sampling.top_k)
    probabilities = apply_temperature(logits, sampling.temperature).softmax(dim=-1)
    probabilities = keep_min_p(keep_top_p(probabilities, sampling.top_p), sampling.min_p)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def penalize_repetition(logits: Tensor, used: Sequence[int], penalty: float) -> Tensor:
    """Divide positive logits of used tokens by the penalty and multiply negative ones by it: (V,) -> (V,)."""
    if penalty == 1.0 or not used:
        return logits
    tokens = torch.tensor(sorted(set(used)))
    chosen = logits[tokens]
    penalized = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
    return logits.index_put((tokens,), penalized.clamp(-LARGEST_LOGIT, LARGEST_LOGIT))


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Exactly the k largest logits, the first of equals; the others become -∞: (V,) -> (V,)."""
    kept = logits.argsort(descending=True, stable=True)[:k]
    return torch.full_like(logits, -math.inf).index_put((kept,), logits[kept])


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen (below 1) or flatten (above 1): (V,) -> (V,). The largest becomes 0, so that nothing overflows."""
    return (logits - logits.max()) / temperature


def keep_top_p(probabilities: Tensor, p: float) -> Tensor:
    """The fewest likeliest tokens whose sum reaches p, never none; the others become 0: (V,) -> (V,)."""
    if p >= 1.0:
        return probabilities
    ordered, order = probabilities.sort(descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    kept = order[: max(1, int((before < p).sum()))]
    return torch.zeros_like(probabilities).index_put((kept,), probabilities[kept])


def keep_min_p(probabilities: Tensor, min_p: float) -> Tensor:
    """Tokens at least min_p times as likely as the likeliest; the others become 0: (V,) -> (V,)."""
    return probabilities.masked_fill(probabilities < min_p * probabilities.max(), 0.0)
