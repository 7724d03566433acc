"""Attention against torch's kernels, torch's own multi-head module, and loops that spell it out."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from transformer.model.attention import (
    MultiHeadAttention,
    Placement,
    attention_weights,
    explicit_attention,
    fused_attention,
)
from transformer.model.config import ModelConfig
from transformer.model.kv_cache import KVCache
from transformer.model.transformer import Transformer, causal_mask

B, T, S, H, K = 2, 7, 5, 3, 11
POSITIONS = ["sinusoidal", "learned", "rotary", "alibi", "none"]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2}


def heads(*, queries: int = T, keys: int = T, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, H, n, K, generator=generator) for n in (queries, keys, keys))


def tiny(position: str, n_kv_heads: int, window: int | None, attention: str) -> ModelConfig:
    return ModelConfig(
        d_model=24,
        n_heads=6,
        n_kv_heads=n_kv_heads,
        n_layers=2,
        context_length=11,
        position=position,
        window=window,
        attention=attention,
    )


def awakened(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model whose layers all do something: those that start at zero get random weights."""
    model = Transformer(config, 13, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5, generator=generator)
    return model.eval()


def test_attention_equals_its_formula_in_loops() -> None:
    queries, keys, values = heads(queries=T, keys=S)
    expected = torch.zeros(B, H, T, K)
    for b, h, i in itertools.product(range(B), range(H), range(T)):
        scores = [math.exp(float(queries[b, h, i] @ keys[b, h, j]) / math.sqrt(K)) for j in range(S)]
        for j in range(S):
            expected[b, h, i] += scores[j] / sum(scores) * values[b, h, j]
    torch.testing.assert_close(explicit_attention(queries, keys, values, Placement()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_any_boolean_mask_gives_what_torch_gives(seed: int) -> None:
    queries, keys, values = heads(queries=T, keys=S, seed=seed)
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    expected = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    for attend in (explicit_attention, fused_attention):
        torch.testing.assert_close(attend(queries, keys, values, Placement(mask=mask)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_cross_attention_equals_torchs_multi_head_module(bias: bool) -> None:
    config = ModelConfig(d_model=H * K, n_heads=H, qk_norm=False, bias=bias, position="none")
    ours = MultiHeadAttention(config)
    theirs = nn.MultiheadAttention(config.d_model, H, bias=bias, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
            theirs.out_proj.bias.copy_(ours.output.bias)
    x, memory = torch.randn(B, T, config.d_model), torch.randn(B, S, config.d_model)
    mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=1)
    output, weights = theirs(x, memory, memory, attn_mask=~mask, average_attn_weights=False)
    placement = Placement(mask=mask)
    torch.testing.assert_close(ours(x, memory, placement=placement), output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.weights(x, memory, placement=placement), weights, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("position", POSITIONS)
def test_written_out_and_fused_attention_agree(
    position: str, n_kv_heads: int, window: int | None, dtype: torch.dtype
) -> None:
    ids = torch.randint(13, (2, 9), generator=torch.Generator().manual_seed(1))
    results = []
    for kind in ("explicit", "fused"):
        config = tiny(position, n_kv_heads, window, kind)
        model = awakened(config).to(dtype)
        logits = model(ids).float()
        logits.square().mean().backward()
        gradient = torch.cat([p.grad.float().flatten() for p in model.parameters()])
        results.append((logits.detach(), gradient / gradient.norm()))
    for explicit, fused in zip(*results, strict=True):
        torch.testing.assert_close(explicit, fused, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("chunks", [[1] * 11, [4, 1, 5, 1], [10, 1], [11]])
@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
@pytest.mark.parametrize("kind", ["explicit", "fused"])
@pytest.mark.parametrize("position", POSITIONS)
def test_reading_in_chunks_with_a_cache_equals_reading_at_once(
    position: str, kind: str, n_kv_heads: int, window: int | None, chunks: list[int]
) -> None:
    config = tiny(position, n_kv_heads, window, kind)
    model = awakened(config)
    ids = torch.randint(13, (3, 11), generator=torch.Generator().manual_seed(2))
    cache = KVCache.empty(config, 3, device=ids.device, dtype=torch.float32)
    with torch.no_grad():
        pieces = [model(part, cache=cache) for part in ids.split(chunks, dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 1, 2, 5, 50])
def test_a_query_sees_its_window_and_exactly_nothing_else(window: int | None) -> None:
    places = torch.arange(T)[None]
    queries, keys, _ = heads()
    weights = attention_weights(queries, keys, Placement(mask=causal_mask(places, places, window)[:, None]))
    for i in range(T):
        seen = range(0 if window is None else max(0, i - window + 1), i + 1)
        hidden = [j for j in range(T) if j not in seen]
        assert (weights[..., i, hidden] == 0).all()
        assert (weights[..., i, list(seen)] > 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, H, T))


@pytest.mark.parametrize("attend", [explicit_attention, fused_attention])
def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients(attend: object) -> None:
    queries, keys, values = (part.requires_grad_() for part in heads(queries=T, keys=S))
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    output = attend(queries, keys, values, Placement(mask=mask))
    output.square().sum().backward()
    assert (output[:, :, 2] == 0).all()
    assert all(part.grad.isfinite().all() for part in (queries, keys, values))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_huge_logits_stay_finite_and_hide_the_future(dtype: torch.dtype) -> None:
    size = math.sqrt(1e4 * math.sqrt(K) / K)  # logits of ±1e4
    signs = torch.where(torch.rand(B, H, T, 1, generator=torch.Generator().manual_seed(3)) < 0.5, -1.0, 1.0)
    queries = (signs * torch.full((B, H, T, K), size)).to(dtype)
    weights = attention_weights(queries, queries, Placement(is_causal=True))
    assert weights.isfinite().all()
    assert (weights.triu(diagonal=1) == 0).all()
    for attend in (explicit_attention, fused_attention):
        assert attend(queries, queries, queries, Placement(is_causal=True)).isfinite().all()


def test_dropout_drops_weights_only_while_training() -> None:
    config = ModelConfig(d_model=24, n_heads=6, n_layers=1, context_length=11, dropout=0.5)
    attention = awakened(config).layers()[0].attention
    x = torch.randn(2, 9, 24)
    placement = Placement(is_causal=True)
    assert torch.equal(attention(x, placement=placement), attention(x, placement=placement))
    attention.train()
    assert not torch.equal(attention(x, placement=placement), attention(x, placement=placement))


def test_dropout_keeps_the_mean_of_attention() -> None:
    queries, keys, values = heads()
    torch.manual_seed(0)
    drawn = [explicit_attention(queries, keys, values, Placement(), dropout=0.2) for _ in range(3000)]
    mean = torch.stack(drawn).mean(dim=0)
    torch.testing.assert_close(mean, explicit_attention(queries, keys, values, Placement()), atol=0.06, rtol=0)
