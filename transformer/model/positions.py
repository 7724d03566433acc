"""Positional encodings: how a model learns where a token stands.

Attention by itself does not know the order of its inputs. Each class below tells it in one of three places, and
overrides the one method that belongs to that place:

    embed     adds something to the token embeddings      sinusoidal, learned
    rotation  turns queries and keys before they meet      rotary
    bias      adds something to the attention logits       alibi

To add an encoding: write a class here, name it in ENCODINGS, and name it in `PositionName` in config.py.
Positions are integers of shape (B, T); B is 1 when all rows of a batch stand at the same places.
"""

import math

import torch
from torch import Tensor, nn

from transformer.model.config import ModelConfig

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of every angle, (B, 1, T, K/2) each."""


class Position(nn.Module):
    """No encoding at all (`none`): the causal mask alone tells early tokens from late ones."""

    def embed(self, positions: Tensor) -> Tensor | None:
        """What is added to token embeddings: (B, T) -> (B, T, D)."""
        return None

    def rotation(self, positions: Tensor) -> Rotation | None:
        """How far queries and keys are turned: (B, T) -> two (B, 1, T, K/2)."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What is added to attention logits: positions (B, T) and (B, S) -> (B, H, T, S)."""
        return None


class Sinusoidal(Position):
    """Sines and cosines of geometrically spaced frequencies (Vaswani et al. 2017, section 3.5)."""

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        pairs = (config.d_model + 1) // 2
        angles = _angles(config.context_length, pairs)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        scale = config.d_model**-0.5 if config.tie_embeddings else 1.0  # as large as the embeddings, see initialize
        self.register_buffer("table", scale * table[:, : config.d_model], persistent=False)

    def embed(self, positions: Tensor) -> Tensor:
        """See Position."""
        return self.table[positions]


class Learned(Position):
    """One trained vector a position (Radford et al. 2018, GPT)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.context_length, config.d_model)

    def embed(self, positions: Tensor) -> Tensor:
        """See Position."""
        return self.table(positions)  # type: ignore[no-any-return]


class Rotary(Position):
    """Turns each pair of dimensions by an angle that grows with the position (Su et al. 2021, section 3.2).

    The product of a turned query and a turned key depends on their distance alone.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        angles = _angles(config.context_length, config.head_dim // 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def rotation(self, positions: Tensor) -> Rotation:
        """See Position."""
        return self.cosine[positions].unsqueeze(1), self.sine[positions].unsqueeze(1)


class Alibi(Position):
    """Lowers a logit in proportion to the distance, with a slope of its own for each head (Press et al. 2021)."""

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(config.n_heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See Position."""
        distance = queries[:, :, None] - keys[:, None, :]
        return -self.slopes[:, None, None] * distance[:, None]


ENCODINGS: dict[str, type[Position]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
}


def position_encoding(config: ModelConfig) -> Position:
    """The encoding that `config.position` names."""
    return Position() if config.position == "none" else ENCODINGS[config.position](config)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn dimension i together with dimension i + K/2, for every i < K/2: (B, H, T, K) -> (B, H, T, K)."""
    cosine, sine = rotation[0].to(x.dtype), rotation[1].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def alibi_slopes(n_heads: int) -> list[float]:
    """Geometric slopes: 2^(-8/n), 2^(-16/n), ... for n a power of two.

    Any other number of heads takes the slopes of the power of two below it, then every second slope of the one
    above (Press et al. 2021, their released code).
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return (slopes + between)[:n_heads]


def _angles(n_positions: int, n_frequencies: int) -> Tensor:
    """Position times frequency 10000^(-i/n): (n_positions, n_frequencies), computed in double precision."""
    frequencies = 10_000.0 ** (-torch.arange(n_frequencies, dtype=torch.float64) / n_frequencies)
    return (torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies).float()
