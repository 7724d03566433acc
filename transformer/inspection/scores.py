"""What an attention head does, in numbers: one definition each, with its source.

A[i, j] is the weight of query i on key j (0 for j > i, rows sum to 1) and x the token ids. A score of attention is a
mean over the *eligible* queries of all rows of a batch. Query 0 sees itself alone and is never eligible. Every such
score is to be read beside its value for a head that looks at all of its past alike (`uniform`).

Shapes: L layers, B rows, H heads, T tokens, K head_dim, D d_model, V vocabulary. What cannot be measured is NaN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.inspection.capture import after_attention, capture_block, rows_that_fit
from transformer.model.attention import Placement
from transformer.model.layers import Block
from transformer.model.transformer import Transformer, eval_mode

MAX_BYTES = 64 * 2**20
"""Largest tensor that a score makes at a time."""

LAST_SHARE = 20
"""`in_context` compares windows of 1/20 of the positions: the last one, and the one around position T/10."""

Eligible = Callable[[Tensor], Tensor]
"""Ids (B, T) -> True for the queries that count (B, T)."""


@dataclass(frozen=True)
class AttentionScore:
    """A mean over queries: `of_query` turns weights (…, B, H, T, T) and ids (B, T) into values (…, B, H, T)."""

    name: str
    of_query: Callable[[Tensor, Tensor], Tensor]
    eligible: Eligible

    def __call__(self, weights: Tensor, ids: Tensor) -> Tensor:
        """The score of every head: weights (L, B, H, T, T), ids (B, T) -> (L, H); NaN where no query is eligible."""
        sums, counts = self.rows(weights, ids)
        return sums.sum(dim=-2) / counts.sum()

    def rows(self, weights: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Sums (…, B, H) and numbers (B,) of eligible queries, row by row, so that rows can be joined or drawn."""
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        eligible = self.eligible(ids)
        values = self.of_query(weights, ids).masked_fill(~eligible[:, None], 0.0)
        return values.sum(dim=-1), eligible.sum(dim=-1)

    def uniform(self, ids: Tensor) -> float:
        """The score of a head with A[i, j] = 1/(i+1) for every j ≤ i."""
        n_tokens = ids.shape[1]
        weights = torch.ones(n_tokens, n_tokens, dtype=torch.float64, device="cpu").tril()
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return self(weights.expand(1, len(ids), 1, n_tokens, n_tokens), ids.cpu()).item()


def from_position(first: int) -> Eligible:
    """Queries from a position on."""
    return lambda ids: (torch.arange(ids.shape[1], device=ids.device) >= first).expand_as(ids)


def occurred_before(ids: Tensor) -> Tensor:
    """Queries whose token stands somewhere before them."""
    return earlier_copies(ids).any(dim=-1)


def earlier_copies(ids: Tensor) -> Tensor:
    """True where x_j = x_i and j < i: (B, T) -> (B, T, T)."""
    return (ids[:, :, None] == ids[:, None, :]).tril(diagonal=-1)


def mean_over(eligible: Eligible) -> Callable[[Callable[[Tensor, Tensor], Tensor]], AttentionScore]:
    """Makes an AttentionScore of a function that says what a single query does."""
    return lambda of_query: AttentionScore(of_query.__name__, of_query, eligible)


@mean_over(from_position(1))
def entropy(weights: Tensor, _: Tensor) -> Tensor:
    """−Σ_j A log A / log(i+1), with 0·log 0 = 0. In [0, 1]; a uniform head has 1.

    Zhai et al. 2023, arXiv 2303.06296, in nats; the division keeps causality from looking like structure.
    """
    logs = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()  # 0 · log(tiny) = 0; faster than torch's entr
    return -(weights * logs).sum(dim=-1) / _places(weights).add(1).log()


@mean_over(from_position(1))
def distance(weights: Tensor, _: Tensor) -> Tensor:
    """Σ_j A·(i−j)/i. In [0, 1]; a uniform head has 0.5. Vig & Belinkov 2019, arXiv 1906.04284, in tokens."""
    places = _places(weights)
    return (places * weights.sum(dim=-1) - weights @ places) / places


@mean_over(from_position(2))
def previous_token(weights: Tensor, _: Tensor) -> Tensor:
    """A[i, i−1]. Uniform: (H_T − 1.5)/(T − 2), H_T the T-th harmonic number. Olsson et al. 2022, arXiv 2209.11895."""
    return F.pad(weights.diagonal(-1, -2, -1), (1, 0))


@mean_over(from_position(1))
def current_token(weights: Tensor, _: Tensor) -> Tensor:
    """A[i, i], a control. Uniform: (H_T − 1)/(T − 1)."""
    return weights.diagonal(0, -2, -1)


@mean_over(from_position(2))
def first_token(weights: Tensor, _: Tensor) -> Tensor:
    """A[i, 0]: attention sinks (Xiao et al. 2023, arXiv 2309.17453). Uniform: (H_T − 1.5)/(T − 2)."""
    return weights[..., 0]


@mean_over(occurred_before)
def duplicate_token(weights: Tensor, ids: Tensor) -> Tensor:
    """Σ of A[i, j] over j < i with x_j = x_i. Uniform: matches/(i+1). Wang et al. 2022, arXiv 2211.00593."""
    return _weight_on(earlier_copies(ids), weights)


@mean_over(occurred_before)
def induction(weights: Tensor, ids: Tensor) -> Tensor:
    """Σ of A[i, j] over 1 ≤ j ≤ i with x_{j−1} = x_i: on the keys *after* earlier copies. A perfect head has 1.

    Olsson et al. 2022, arXiv 2209.11895 (prefix matching), over eligible queries only.
    """
    return _weight_on(F.pad(earlier_copies(ids)[..., :-1], (1, 0)), weights)


ATTENTION_SCORES = (entropy, distance, previous_token, current_token, first_token, duplicate_token, induction)


def max_logit(logits: Tensor, visible: Tensor | None) -> Tensor:
    """max |q·k|/√d_k over the pairs that see each other: logits (B, H, T, T) -> (B, H), before any bias.

    Where it grows while entropy falls, attention collapses. Dehghani et al. 2023, arXiv 2302.05442.
    """
    seen = logits if visible is None else logits.masked_fill(~visible, 0.0)
    return seen.abs().amax(dim=(-2, -1)).float()


def copying(model: Transformer) -> Tensor:
    """Σ Re λ / Σ |λ| of M = W_E W_V W_O W_U, for every head (L, H): 1 where it raises the token it looks at.

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits". M is V×V; its eigenvalues other than 0
    are those of the K×K product that begins at W_O instead. The gains of the norm before attention and of the last
    norm are part of it; biases and LayerNorm's centring are not. In [−1, 1]; a random head is near 0, one that
    writes nothing is 0. In double precision.
    """
    with torch.no_grad():
        unembedding = model.embedding.weight if model.config.tie_embeddings else model.output.weight
        final_gain = _double(model.final_norm.get_parameter("weight"))
        circuit = final_gain[:, None] * (_double(unembedding).T @ _double(model.embedding.weight))
        return torch.stack([_copying_of_block(block, circuit) for block in model.layers()])


def knockout(model: Transformer, ids: Tensor) -> Tensor:
    """How much the loss of each row rises, in nats a token, when a head only says its mean: ids (B, T) -> (B, L, H).

    The mean is over all rows and positions. Michel et al. 2019, arXiv 1905.10650. Strong attention without effect
    shows here: attention weights are not explanations.
    """
    losses = []
    with eval_mode(model):
        positions, placement = model.place(ids)
        x = model.embed(ids, positions)
        for layer, block in enumerate(model.layers()):
            seen = capture_block(block, x, placement, layer=layer, rows=slice(len(ids)))
            silenced = seen.attended + _without_each_head(block.attention.output.weight, seen.outputs)
            losses.append(_losses_from(model, layer, silenced, ids, placement))
            x = seen.output
        with_all = token_losses(model, x, ids).mean(dim=-1)
    return torch.stack(losses).movedim(-1, 0) - with_all[:, None, None]


def token_losses(model: Transformer, x: Tensor, ids: Tensor) -> Tensor:
    """Loss of every token but the first, in nats, from what leaves the last block: (B, T, D) -> (B, T−1)."""
    n_rows = rows_that_fit(MAX_BYTES, ids.shape[1] * model.vocab_size)
    losses = []
    for part, targets in zip(torch.split(x[:, :-1], n_rows), torch.split(ids[:, 1:], n_rows), strict=True):
        logits = model.predict(part).float()
        losses.append(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape))
    return torch.cat(losses)


def copy_gap(losses: Tensor, periods: Sequence[int]) -> float:
    """Mean loss of first occurrences − that of copies, on rows [r r …]: losses (B, T−1) of all tokens but the first.

    With period p, tokens 1 … p−1 occur first and tokens from p+1 on are copies. Token p, the first to be repeated,
    cannot be foreseen and is neither. 0 untrained, log V where copying works.
    """
    token = torch.arange(1, losses.shape[1] + 1, device=losses.device)
    period = torch.tensor(periods, device=losses.device)[:, None]
    return (losses[token < period].mean() - losses[token > period].mean()).item()


def in_context(losses: Tensor) -> float:
    """Mean loss over the last 5 % of positions − that over as many around position T/10: losses (B, T).

    Negative where a longer past helps. Never to be compared across context lengths. NaN where the two overlap.
    """
    n_positions = losses.shape[1]
    width = max(1, round(n_positions / LAST_SHARE))
    start = max(0, n_positions // 10 - width // 2)
    if start + width > n_positions - width:
        return math.nan
    return (losses[:, -width:].mean() - losses[:, start : start + width].mean()).item()


def rollout(weights: Tensor) -> Tensor:
    """R_l = ½(Ā_l + I)·R_{l−1} with R_0 = I, Ā the mean over heads: (L, B, H, T, T) -> R_1 … R_L, (L, B, T, T).

    How much of each input token is in each place, if layers only mixed. Under a causal mask it piles up on token 0
    by construction. Abnar & Zuidema 2020, arXiv 2005.00928.
    """
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    rolled = [identity]
    for layer in weights.mean(dim=2):
        rolled.append((layer + identity) / 2 @ rolled[-1])
    return torch.stack(rolled[1:])


def _places(weights: Tensor) -> Tensor:
    """0 … T−1, of the kind of the weights."""
    return torch.arange(weights.shape[-1], dtype=weights.dtype, device=weights.device)


def _weight_on(keys: Tensor, weights: Tensor) -> Tensor:
    """What each query gives to its chosen keys: (B, T, T) booleans, (…, B, H, T, T) -> (…, B, H, T)."""
    return (weights * keys[:, None]).sum(dim=-1)


def _double(parameter: Tensor) -> Tensor:
    """In double precision, which mps has not."""
    return (parameter.cpu() if parameter.device.type == "mps" else parameter).double()


def _copying_of_block(block: Block, circuit: Tensor) -> Tensor:
    """Copying of a block's heads (H,), with `circuit` (D, D) from what they write to the tokens that this resembles."""
    attention, kv_shape = block.attention, (-1, block.attention.head_dim, len(circuit))
    read = (_double(attention.value.weight) * _double(block.attention_norm.get_parameter("weight"))).view(kv_shape)
    read = read.repeat_interleave(attention.group_size, dim=0)
    write = _double(attention.output.weight).view(len(circuit), -1, attention.head_dim).movedim(1, 0)
    products = (read @ circuit.T @ write).cpu()
    finite = products.isfinite().all(dim=(-2, -1))
    eigenvalues = torch.linalg.eigvals(products.where(finite[:, None, None], 0.0))
    size = eigenvalues.abs().sum(dim=-1)
    share = eigenvalues.real.sum(dim=-1) / size.where(size > 0, 1.0)
    return torch.where(finite, share, math.nan)


def _without_each_head(output_weight: Tensor, outputs: Tensor) -> Tensor:
    """What changes when one head says its mean: (D, H·K), (B, H, T, K) -> (H, B, T, D)."""
    change = outputs.mean(dim=(0, 2), keepdim=True) - outputs
    per_head = output_weight.view(len(output_weight), outputs.shape[1], -1)
    return torch.einsum("bhtk,dhk->hbtd", change, per_head)


def _losses_from(model: Transformer, layer: int, attended: Tensor, ids: Tensor, placement: Placement) -> Tensor:
    """Mean loss of each row for each way to leave a layer's attention: (H, B, T, D), (B, T) -> (H, B)."""
    block, *others = model.layers()[layer:]
    n_rows = rows_that_fit(MAX_BYTES, ids.shape[1] * max(model.vocab_size, model.config.feed_forward_width))
    losses = []
    rows, row_ids = attended.flatten(0, 1), ids.repeat(len(attended), 1)
    for part, part_ids in zip(torch.split(rows, n_rows), torch.split(row_ids, n_rows), strict=True):
        x = after_attention(block, part)
        for other in others:
            x = other(x, placement=placement)
        losses.append(token_losses(model, x, part_ids).mean(dim=-1))
    return torch.cat(losses).view(attended.shape[:2])
