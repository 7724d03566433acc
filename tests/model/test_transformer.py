"""The whole model: causality, shape, initialisation, and what each key of its configuration does."""

import math

import pytest
import torch
from pydantic import ValidationError

from tests.model.test_attention import POSITIONS, awakened
from transformer import ModelConfig, Transformer, attention_maps
from transformer.model.attention import Placement
from transformer.model.kv_cache import KVCache

SMALL = ModelConfig(d_model=24, n_heads=6, n_layers=2, context_length=11)
IDS = torch.randint(13, (3, 11), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("position", POSITIONS)
def test_changing_a_future_token_leaves_earlier_logits_unchanged(position: str, window: int | None) -> None:
    model = awakened(SMALL.model_copy(update={"position": position, "window": window}))
    changed = IDS.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 13
    before, after = model(IDS), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi"])
def test_the_order_of_the_past_matters(position: str) -> None:
    model = awakened(SMALL.model_copy(update={"position": position}))
    swapped = IDS[:, [1, 0, *range(2, 11)]]
    assert not torch.allclose(model(IDS)[:, -1], model(swapped)[:, -1], atol=1e-4)


def test_more_tokens_than_the_context_are_refused() -> None:
    model = Transformer(SMALL, 13)
    with pytest.raises(ValueError, match="12 tokens do not fit the model's context of 11"):
        model(torch.zeros(1, 12, dtype=torch.long))
    cache = KVCache.empty(SMALL, 1, device=IDS.device, dtype=torch.float32)
    model(IDS[:1], cache=cache)
    with pytest.raises(ValueError, match="12 tokens do not fit"):
        model(IDS[:1, :1], cache=cache)


def test_rows_of_different_lengths_share_a_cache() -> None:
    model = awakened(SMALL)
    parts = []
    for row, length in enumerate((3, 8)):
        part = KVCache.empty(SMALL, 1, device=IDS.device, dtype=torch.float32)
        model(IDS[row : row + 1, :length], cache=part)
        parts.append(part)
    cache = KVCache.empty(SMALL, 2, device=IDS.device, dtype=torch.float32)
    for row, part in enumerate(parts):
        cache.put([row], part)
    logits = model(torch.stack([IDS[0, 3:5], IDS[1, 8:10]]), cache=cache)
    torch.testing.assert_close(logits[0, -1], model(IDS[:1, :5])[0, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits[1, -1], model(IDS[1:2, :10])[0, -1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("feed_forward", ["gelu", "relu2", "swiglu"])
@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_the_number_of_parameters_is_that_of_the_formula(feed_forward: str, tie_embeddings: bool) -> None:
    config = ModelConfig(
        d_model=24,
        n_heads=6,
        n_kv_heads=2,
        n_layers=3,
        d_ff=40,
        feed_forward=feed_forward,
        tie_embeddings=tie_embeddings,
    )
    attention = 24 * 24 * 2 + 24 * 8 * 2
    block = attention + 24 * 40 * (3 if feed_forward == "swiglu" else 2) + 2 * 24
    embeddings = 13 * 24 * (1 if tie_embeddings else 2)
    assert Transformer(config, 13).n_parameters == embeddings + 3 * block + 24


@pytest.mark.parametrize("feed_forward", ["gelu", "relu2", "swiglu"])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_every_block_begins_as_the_identity(feed_forward: str, norm: str) -> None:
    model = Transformer(SMALL.model_copy(update={"feed_forward": feed_forward, "norm": norm}), 13)
    positions, placement = model.place(IDS)
    x = model.embed(IDS, positions)
    for block in model.layers():
        assert torch.equal(block(x, placement=placement), x)


def test_an_untrained_model_finds_every_token_equally_likely() -> None:
    loss = torch.nn.functional.cross_entropy(Transformer(SMALL, 13)(IDS).flatten(0, 1), IDS.flatten())
    assert loss.item() == pytest.approx(math.log(13), abs=1e-6)


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = Transformer(SMALL, 13, seed=7)
    torch.manual_seed(2)
    same, other = Transformer(SMALL, 13, seed=7), Transformer(SMALL, 13, seed=8)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.embedding.weight, other.embedding.weight)


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 36},
        {"n_layers": 1},
        {"n_heads": 3},
        {"n_kv_heads": 2},
        {"d_ff": 32},
        {"position": "alibi"},
        {"window": 2},
        {"qk_norm": False},
        {"norm": "layernorm"},
        {"feed_forward": "gelu"},
        {"feed_forward": "swiglu"},
        {"tie_embeddings": True},
        {"bias": True},
    ],
)
def test_each_key_of_the_model_has_an_effect(change: dict[str, object]) -> None:
    def outcome(config: ModelConfig) -> tuple[int, torch.Tensor]:
        model = awakened(config)
        return model.n_parameters, model(IDS)

    parameters, logits = outcome(SMALL)
    changed_parameters, changed_logits = outcome(ModelConfig(**{**SMALL.model_dump(), **change}))
    assert changed_parameters != parameters or not torch.allclose(changed_logits, logits, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 25}, "must divide d_model: 25 / 6"),
        ({"n_kv_heads": 4}, "must divide n_heads: 6 / 4"),
        ({"d_model": 18}, "rotary turns pairs of dimensions, and d_model / n_heads = 3 is odd"),
        ({"window": 0}, "greater than or equal to 1"),
        ({"dropout": 1.0}, "less than 1"),
        ({"dropout": float("nan")}, "finite number"),
        ({"n_layers": True}, "valid integer"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig(**{**SMALL.model_dump(), **change})


@pytest.mark.parametrize("kind", ["explicit", "fused"])
@pytest.mark.parametrize("position", POSITIONS)
def test_maps_times_values_give_what_attention_gives(position: str, kind: str) -> None:
    config = SMALL.model_copy(update={"position": position, "attention": kind, "n_kv_heads": 2, "window": 5})
    model = awakened(config)
    maps = attention_maps(model, IDS)
    positions, placement = model.place(IDS)
    x = model.embed(IDS, positions)
    for layer, block in enumerate(model.layers()):
        normed = block.attention_norm(x)
        values = block.attention.value(normed).view(3, 11, 2, 4).transpose(1, 2).repeat_interleave(3, dim=1)
        joined = (maps[layer] @ values).transpose(1, 2).flatten(2)
        expected = block.attention(normed, placement=placement)
        torch.testing.assert_close(block.attention.output(joined), expected, atol=1e-5, rtol=1e-5)
        x = block(x, placement=placement)


def test_maps_leave_the_model_and_its_randomness_alone() -> None:
    model = awakened(SMALL.model_copy(update={"dropout": 0.3})).train()
    state = torch.get_rng_state()
    maps = attention_maps(model, IDS)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(maps, attention_maps(model, IDS))
    assert maps.shape == (2, 3, 6, 11, 11)
    assert (maps.triu(diagonal=1) == 0).all()
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 3, 6, 11))


def test_one_token_attends_to_itself() -> None:
    assert (attention_maps(awakened(SMALL), IDS[:, :1]) == 1).all()


def test_a_placement_shows_everything_by_default() -> None:
    assert Placement().visible(3, 4, IDS.device) is None
