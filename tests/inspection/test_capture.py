"""What is seen of attention from outside, against the model's own outputs."""

import pytest
import torch

from tests.model.test_attention import POSITIONS, awakened, tiny
from transformer import attention_maps
from transformer.inspection.capture import capture
from transformer.model.attention import Placement
from transformer.model.kv_cache import KVCache

IDS = torch.randint(13, (3, 11), generator=torch.Generator().manual_seed(5))


def joined(attention: object, outputs: torch.Tensor) -> torch.Tensor:
    return attention.output(outputs.transpose(1, 2).reshape(*outputs.shape[0:3:2], -1))


@pytest.mark.parametrize("chunks", [[1] * 11, [4, 1, 6]])
@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
@pytest.mark.parametrize("position", POSITIONS)
def test_maps_of_a_cached_reading_equal_those_of_a_full_pass(
    position: str, n_kv_heads: int, window: int | None, chunks: list[int]
) -> None:
    model = awakened(tiny(position, n_kv_heads, window, "auto"))
    cache = KVCache.empty(model.config, 3, device=IDS.device, dtype=torch.float32)
    full = attention_maps(model, IDS)
    read = 0
    for part in IDS.split(chunks, dim=1):
        maps = attention_maps(model, part, cache=cache)
        here = slice(read, read + part.shape[1])
        read = here.stop
        torch.testing.assert_close(maps, full[..., here, :read], atol=1e-5, rtol=0)
    assert cache.lengths == [11, 11, 11]
    assert (full.triu(diagonal=1) == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("n_kv_heads", [6, 2])
@pytest.mark.parametrize("position", POSITIONS)
def test_captured_heads_joined_and_projected_equal_the_fused_module(
    position: str, n_kv_heads: int, window: int | None, dtype: torch.dtype, tolerance: float
) -> None:
    model = awakened(tiny(position, n_kv_heads, window, "fused")).to(dtype)
    with torch.no_grad():
        positions, placement = model.place(IDS)
        x = model.embed(IDS, positions)
        for block, seen in zip(model.layers(), capture(model, IDS), strict=True):
            expected = block.attention(block.attention_norm(x), placement=placement)
            torch.testing.assert_close(joined(block.attention, seen.outputs), expected, atol=tolerance, rtol=tolerance)
            assert seen.weights.dtype == torch.float32
            assert (seen.weights.triu(diagonal=1) == 0).all()
            x = seen.output


@pytest.mark.parametrize("max_bytes", [1, 2 * 4 * 6 * 11 * 11, 2**30])
def test_chunks_of_rows_join_to_what_the_whole_batch_gives(max_bytes: int) -> None:
    model = awakened(tiny("alibi", 2, 4, "auto"))
    weights, output = torch.zeros(2, 3, 6, 11, 11), torch.zeros(3, 11, 24)
    for seen in capture(model, IDS, max_bytes=max_bytes):
        assert seen.weights.numel() * 4 <= max(max_bytes, 4 * 6 * 11 * 11)
        weights[seen.layer, seen.rows], output[seen.rows] = seen.weights, seen.output
    torch.testing.assert_close(weights, attention_maps(model, IDS), atol=1e-6, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(model.predict(output), model(IDS), atol=1e-5, rtol=1e-5)


def test_logits_are_products_of_queries_and_keys_without_the_bias_of_positions() -> None:
    model = awakened(tiny("alibi", 6, None, "auto"))
    seen = next(capture(model, IDS))
    block = model.layers()[0]
    with torch.no_grad():
        x = block.attention_norm(model.embed(IDS, torch.arange(11)[None]))
        queries, keys, _ = block.attention.heads(x, placement=Placement())
    expected = torch.zeros(3, 6, 11, 11)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, expected.shape)).tolist():
        expected[b, h, i, j] = queries[b, h, i] @ keys[b, h, j] / 2  # √d_k
    torch.testing.assert_close(seen.logits, expected, atol=1e-5, rtol=1e-5)


def test_a_model_in_training_is_captured_without_dropout_and_goes_on_training() -> None:
    model = awakened(tiny("rotary", 6, None, "auto").model_copy(update={"dropout": 0.4})).train()
    state = torch.get_rng_state()
    for seen in capture(model, IDS):
        assert model.training
        assert torch.is_grad_enabled()
        assert not seen.weights.requires_grad
        torch.testing.assert_close(seen.weights, attention_maps(model, IDS)[seen.layer])
    assert torch.equal(torch.get_rng_state(), state)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        next(capture(awakened(tiny("rotary", 6, None, "auto")), torch.zeros(1, 12, dtype=torch.int64)))
