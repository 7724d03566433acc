"""A decoder-only Transformer: embed tokens, pass them through blocks, predict the next token at each place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.attention import Placement
from transformer.model.config import ModelConfig
from transformer.model.kv_cache import KVCache
from transformer.model.layers import Block, norm
from transformer.model.positions import position_encoding


class Transformer(nn.Module):
    """Token ids (B, T) -> logits of the next token (B, T, V)."""

    def __init__(self, config: ModelConfig, vocab_size: int, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.position = position_encoding(config)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = norm(config)
        if not config.tie_embeddings:
            self.output = nn.Linear(config.d_model, vocab_size, bias=False)
        initialize(self, seed=seed)

    def forward(self, ids: Tensor, *, cache: KVCache | None = None, last_only: bool = False) -> Tensor:
        """Predict the next token at each place: (B, T) -> (B, T, V); T ≤ context_length.

        With `last_only`, at the last place alone: (B, 1, V). With a cache, `ids` continue the tokens that the cache
        holds, and are added to it.
        Raises ValueError where there are more tokens than the context has room for.
        """
        positions, placement = self.place(ids, cache)
        x = self.embed(ids, positions)
        for index, block in enumerate(self.blocks):
            layer_cache = None if cache is None else cache.layer(index, positions)
            x = block(x, placement=placement, cache=layer_cache)
        if cache is not None:
            cache.advance(ids.shape[1])
        return self.predict(x[:, -1:] if last_only else x)

    def place(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, Placement]:
        """The tokens' positions, (1, T) or with a cache (B, T), and what follows from them in attention."""
        n_new, n_cached = ids.shape[1], 0 if cache is None else max(cache.lengths)
        if n_new + n_cached > self.config.context_length:
            raise ValueError(
                f"{n_new + n_cached} tokens do not fit the model's context of {self.config.context_length}"
            )
        keys = torch.arange(n_new + n_cached, device=ids.device)[None]
        queries = keys if cache is None else cache.positions(n_new)
        window = self.config.window
        is_causal = cache is None and window is None
        rotation = self.position.rotation(queries)
        return queries, Placement(
            mask=None if is_causal else causal_mask(queries, keys, window)[:, None],
            is_causal=is_causal,
            bias=self.position.bias(queries, keys),
            query_rotation=rotation,
            key_rotation=rotation,
        )

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """What enters the first block: (B, T) -> (B, T, D)."""
        x, offset = self.embedding(ids), self.position.embed(positions)
        return self.dropout(x if offset is None else x + offset)  # type: ignore[no-any-return]

    def predict(self, x: Tensor) -> Tensor:
        """What leaves the last block -> logits: (B, T, D) -> (B, T, V)."""
        matrix = self.embedding.weight if self.config.tie_embeddings else self.output.weight
        return F.linear(self.final_norm(x), matrix)

    def layers(self) -> list[Block]:
        """The blocks, from input to output."""
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def n_parameters(self) -> int:
        """Number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients inside this context; the model is then as it was."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def causal_mask(queries: Tensor, keys: Tensor, window: int | None = None) -> Tensor:
    """True where a query may see a key: positions (B, T) and (B, S) -> (B, T, S).

    A query sees its own position and those before it; with a window W exactly W keys, its own among them.
    """
    distance = queries[:, :, None] - keys[:, None, :]
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)


@torch.no_grad()
def initialize(model: Transformer, *, seed: int) -> None:
    """Set every weight from `seed` alone; the only place that decides how a model starts.

    Matrices keep the size of what passes through them (normal, deviation 1/√fan_in). The last matrix of every
    layer that adds to the residual stream starts at zero, so that each block begins as the identity (Zhang et
    al. 2019, Fixup). So does an output layer of its own:
    the first prediction is uniform.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        elif name.endswith(("attention.output.weight", "feed_forward.down.weight")) or name == "output.weight":
            parameter.zero_()
        elif name in ("embedding.weight", "position.table.weight"):
            tied = model.config.tie_embeddings
            parameter.normal_(std=model.config.d_model**-0.5 if tied else 1.0, generator=generator)
        else:
            parameter.normal_(std=parameter.shape[1] ** -0.5, generator=generator)
