"""What a model expected at each place of a text that it reads."""

from dataclasses import dataclass

from torch import Tensor

from transformer.model.transformer import Transformer, eval_mode


@dataclass(frozen=True)
class Prediction:
    """How likely a token was after those before it, and the likeliest tokens there with their probabilities."""

    probability: float
    alternatives: list[tuple[int, float]]


def predictions(model: Transformer, ids: Tensor, *, n_alternatives: int) -> list[Prediction]:
    """One prediction for every token but the first, before any temperature: ids (T,) -> T − 1 of them.

    Raises ValueError where T exceeds the model's context.
    """
    with eval_mode(model):
        probabilities = model(ids[None])[0, :-1].float().softmax(dim=-1)
    likeliest = probabilities.topk(min(n_alternatives, model.vocab_size))
    chosen = probabilities.gather(1, ids[1:, None])[:, 0]
    return [
        Prediction(probability, list(zip(tokens, values, strict=True)))
        for probability, tokens, values in zip(
            chosen.tolist(), likeliest.indices.tolist(), likeliest.values.tolist(), strict=True
        )
    ]
