"""Every score against its closed form on hand-built heads, and against loops that spell its definition out."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.model.test_attention import POSITIONS, awakened, tiny
from transformer.inspection import scores
from transformer.inspection.capture import capture
from transformer.inspection.scores import ATTENTION_SCORES, AttentionScore

T = 13
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9]])
REPEATS = torch.arange(5).repeat(3)[None, :T]
HARMONIC = sum(1 / n for n in range(1, T + 1))
SCORES = {score.name: score for score in ATTENTION_SCORES}
every_score = pytest.mark.parametrize("score", ATTENTION_SCORES, ids=lambda score: score.name)


def random_weights(*shape: int, seed: int = 0, n_tokens: int = T) -> Tensor:
    logits = 2 * torch.randn(*shape, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed)).double()
    future = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(diagonal=1)
    return logits.masked_fill(future, -math.inf).softmax(dim=-1)


def head(key_of: Callable[[int], int]) -> Tensor:
    """A head whose query i gives all its weight to key_of(i): (1, 1, 1, T, T)."""
    weights = torch.zeros(1, 1, 1, T, T)
    for i in range(T):
        weights[..., i, key_of(i)] = 1.0
    return weights


def close(actual: Tensor | float, expected: Tensor | float, tolerance: float = 1e-6) -> None:
    actual, expected = torch.as_tensor(actual).double(), torch.as_tensor(expected).double()
    torch.testing.assert_close(actual, expected.expand_as(actual), atol=tolerance, rtol=0)


PATTERNS: dict[str, tuple[Callable[[int], int], dict[str, float]]] = {
    "previous": (lambda i: max(0, i - 1), {"previous_token": 1.0, "current_token": 0.0, "entropy": 0.0}),
    "current": (lambda i: i, {"current_token": 1.0, "distance": 0.0, "first_token": 0.0, "entropy": 0.0}),
    "first": (lambda _: 0, {"first_token": 1.0, "distance": 1.0, "previous_token": 0.0, "induction": 0.0}),
    "duplicate": (lambda i: max(i % 5, i - 5), {"duplicate_token": 1.0, "induction": 0.0, "previous_token": 0.0}),
    "induction": (lambda i: i - 4 if i >= 5 else i, {"induction": 1.0, "duplicate_token": 0.0, "previous_token": 0.0}),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_perfect_head_scores_what_it_does_and_nothing_else(pattern: str) -> None:
    key_of, expected = PATTERNS[pattern]
    for name, value in expected.items():
        close(SCORES[name](head(key_of), REPEATS), value)


def test_the_distance_of_a_previous_token_head_is_its_closed_form() -> None:
    close(SCORES["distance"](head(lambda i: max(0, i - 1)), REPEATS), (HARMONIC - 1 / T) / (T - 1))


def test_a_uniform_head_scores_its_closed_forms() -> None:
    close(SCORES["entropy"].uniform(IDS), 1.0)
    close(SCORES["distance"].uniform(IDS), 0.5)
    close(SCORES["previous_token"].uniform(IDS), (HARMONIC - 1.5) / (T - 2))
    close(SCORES["first_token"].uniform(IDS), (HARMONIC - 1.5) / (T - 2))
    close(SCORES["current_token"].uniform(IDS), (HARMONIC - 1) / (T - 1))
    matches = sum(((i // 5) / (i + 1)) for i in range(5, T)) / (T - 5)
    close(SCORES["duplicate_token"].uniform(REPEATS), matches)
    close(SCORES["induction"].uniform(REPEATS), matches)


def by_hand(name: str, weights: Tensor, ids: Tensor) -> float:
    """One head's score in plain Python: weights (B, T, T)."""
    values = []
    for b, x in enumerate(ids.tolist()):
        a = weights[b].tolist()
        for i in range(1, len(x)):
            if name == "entropy":
                values.append(-sum(w * math.log(w) for w in a[i] if w > 0) / math.log(i + 1))
            elif name == "distance":
                values.append(sum(a[i][j] * (i - j) / i for j in range(i)))
            elif name == "current_token":
                values.append(a[i][i])
            elif name == "previous_token" and i >= 2:
                values.append(a[i][i - 1])
            elif name == "first_token" and i >= 2:
                values.append(a[i][0])
            elif name == "duplicate_token" and x[i] in x[:i]:
                values.append(sum(a[i][j] for j in range(i) if x[j] == x[i]))
            elif name == "induction":
                keys = [j for j in range(1, i + 1) if x[j - 1] == x[i]]
                values += [sum(a[i][j] for j in keys)] if keys else []
    return sum(values) / len(values) if values else math.nan


@every_score
@pytest.mark.parametrize("ids", [IDS, IDS[:, :2], IDS[1:, :5], REPEATS], ids=["text", "two", "row", "repeats"])
def test_a_score_equals_its_definition_in_loops(score: AttentionScore, ids: Tensor) -> None:
    weights = random_weights(2, len(ids), 3, n_tokens=ids.shape[1])
    actual = score(weights, ids)
    assert actual.shape == (2, 3)
    for layer in range(2):
        for h in range(3):
            expected = by_hand(score.name, weights[layer, :, h], ids)
            assert actual[layer, h].item() == pytest.approx(expected, abs=1e-9, nan_ok=True)


@every_score
def test_the_order_of_rows_and_their_chunking_do_not_matter(score: AttentionScore) -> None:
    ids = torch.cat([IDS, IDS.flip(1), REPEATS])
    weights = random_weights(2, 5, 3)
    whole, order = score(weights, ids), torch.tensor([4, 2, 0, 1, 3])
    close(score(weights[:, order], ids[order]), whole, 1e-12)
    parts = [score.rows(weights[:, rows], ids[rows]) for rows in (slice(0, 1), slice(1, 3), slice(3, 5))]
    sums = torch.cat([part[0] for part in parts], dim=1)
    close(sums.sum(dim=1) / torch.cat([part[1] for part in parts]).sum(), whole, 1e-12)


@every_score
def test_names_of_tokens_do_not_matter(score: AttentionScore) -> None:
    renamed = torch.randperm(10, generator=torch.Generator().manual_seed(1))[IDS]
    weights = random_weights(1, 2, 3)
    assert torch.equal(score(weights, renamed), score(weights, IDS))


@every_score
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_a_coarser_number_type_changes_a_score_little(
    score: AttentionScore, dtype: torch.dtype, tolerance: float
) -> None:
    weights = random_weights(2, 2, 3)
    close(score(weights.to(dtype), IDS), score(weights, IDS), tolerance)


@every_score
def test_a_head_that_is_not_finite_is_not_a_number_and_spoils_no_other(score: AttentionScore) -> None:
    weights = random_weights(2, 2, 3)
    broken = weights.clone()
    broken[1, 0, 2, 8:] = math.nan
    actual, expected = score(broken, IDS), score(weights, IDS)
    assert actual[1, 2].isnan()
    expected[1, 2] = math.nan
    assert torch.equal(actual.nan_to_num(-9.0), expected.nan_to_num(-9.0))


@every_score
def test_one_token_has_no_eligible_query(score: AttentionScore) -> None:
    assert score(torch.ones(1, 2, 1, 1, 1), IDS[:, :1]).isnan().all()
    assert math.isnan(score.uniform(IDS[:, :1]))


@pytest.mark.parametrize("window", [None, 3])
def test_the_largest_logit_is_that_of_a_pair_that_sees_each_other(window: int | None) -> None:
    model = awakened(tiny("rotary", 2, window, "auto"))
    ids = IDS[:, :11]
    for seen in capture(model, ids):
        actual = scores.max_logit(seen.logits, seen.visible)
        for b in range(2):
            for h in range(6):
                pairs = [(i, j) for i in range(11) for j in range(i + 1) if window is None or i - j < window]
                assert actual[b, h] == max(abs(seen.logits[b, h, i, j].item()) for i, j in pairs)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_copying_equals_the_eigenvalues_of_the_whole_vocabulary(norm: str, tied: bool) -> None:
    model = awakened(tiny("rotary", 2, None, "auto").model_copy(update={"tie_embeddings": tied, "norm": norm}))
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(index))
    actual = scores.copying(model)
    embedding, final = model.embedding.weight.double(), model.final_norm.weight.double()
    unembedding = embedding if tied else model.output.weight.double()
    for layer, block in enumerate(model.layers()):
        attention, gain = block.attention, block.attention_norm.weight.double()
        for h in range(6):
            value = attention.value.weight.double()[h // 3 * 4 : h // 3 * 4 + 4]
            output = attention.output.weight.double()[:, h * 4 : h * 4 + 4]
            matrix = (embedding * gain) @ value.T @ output.T @ (unembedding * final).T
            eigenvalues = torch.linalg.eigvals(matrix)
            expected = eigenvalues.real.sum() / eigenvalues.abs().sum()
            close(actual[layer, h], expected, 1e-5)


def test_a_head_that_only_passes_tokens_on_copies_and_its_opposite_does_not() -> None:
    model = awakened(tiny("none", 6, None, "auto").model_copy(update={"tie_embeddings": True}))
    attention = model.layers()[0].attention
    with torch.no_grad():
        attention.value.weight.copy_(torch.eye(24))
        attention.output.weight.copy_(torch.eye(24) * torch.tensor([1.0, -1.0]).repeat_interleave(12))
    close(scores.copying(model)[0], torch.tensor([1.0, 1, 1, -1, -1, -1]), 1e-9)


def test_a_head_that_writes_nothing_copies_0_and_one_that_is_not_finite_is_not_a_number() -> None:
    model = awakened(tiny("rotary", 6, None, "auto"))
    output = model.layers()[1].attention.output.weight
    with torch.no_grad():
        output[:, :4], output[0, 4] = 0.0, math.nan
    copying = scores.copying(model)[1]
    assert copying[0] == 0
    assert copying[1].isnan()
    assert copying[2:].isfinite().all()


def losses_with(model: object, ids: Tensor, layer: int, replace: Callable[[Tensor], Tensor]) -> Tensor:
    """Loss of each row when the joined heads of one layer, (B, T, H·K), pass through `replace`."""
    handle = model.layers()[layer].attention.output.register_forward_pre_hook(lambda _, inputs: replace(inputs[0]))
    with torch.no_grad():
        log_p = model(ids).double().log_softmax(dim=-1)
    handle.remove()
    return torch.stack([-sum(log_p[b, i, x[i + 1]] for i in range(len(x) - 1)) / (len(x) - 1) for b, x in rows(ids)])


def rows(ids: Tensor) -> list[tuple[int, list[int]]]:
    return list(enumerate(ids.tolist()))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("position", POSITIONS)
def test_knockout_equals_a_model_whose_head_is_replaced(position: str, window: int | None) -> None:
    config = tiny(position, 2, window, "auto").model_copy(update={"bias": True, "dropout": 0.3})
    model, ids = awakened(config), IDS[:, :11]
    actual = scores.knockout(model.train(), ids)
    assert model.training
    assert actual.shape == (2, 2, 6)
    model.eval()
    for layer in range(2):
        for h in range(6):

            def silence(joined: Tensor, part: slice = slice(4 * h, 4 * h + 4)) -> Tensor:
                changed = joined.clone()
                changed[..., part] = joined[..., part].mean(dim=(0, 1))
                return changed

            expected = losses_with(model, ids, layer, silence) - losses_with(model, ids, layer, lambda joined: joined)
            close(actual[:, layer, h], expected, 1e-5)


def test_knockout_in_small_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = awakened(tiny("rotary", 6, None, "auto"))
    whole = scores.knockout(model, IDS[:, :11])
    monkeypatch.setattr(scores, "MAX_BYTES", 3 * 4 * 11 * 96)
    close(scores.knockout(model, IDS[:, :11]), whole, 1e-6)


def test_the_copy_gap_leaves_out_the_first_repeated_token() -> None:
    losses = torch.tensor([[5.0, 6.0, 100.0, 1.0, 2.0], [7.0, 100.0, 3.0, 4.0, 5.0]])  # of tokens 1 … 5
    close(scores.copy_gap(losses, [3, 2]), (5 + 6 + 7) / 3 - (1 + 2 + 3 + 4 + 5) / 5)
    assert math.isnan(scores.copy_gap(losses[:, :2], [3, 3]))


def test_in_context_compares_the_last_twentieth_with_a_window_around_a_tenth() -> None:
    losses = torch.arange(100.0).expand(3, 100) ** 2
    last, early = range(95, 100), range(8, 13)
    close(scores.in_context(losses), sum(i * i for i in last) / 5 - sum(i * i for i in early) / 5, 1e-3)
    assert scores.in_context(losses[:, :2]) == 1.0
    assert math.isnan(scores.in_context(losses[:, :1]))


def test_rollout_equals_its_recursion_in_loops() -> None:
    weights = random_weights(3, 2, 4)
    actual = scores.rollout(weights)
    expected = torch.eye(T, dtype=torch.float64).expand(2, T, T)
    for layer in range(3):
        mixed = torch.stack([0.5 * (weights[layer, b].mean(dim=0) + torch.eye(T)) for b in range(2)])
        expected = torch.stack([mixed[b] @ expected[b] for b in range(2)])
        close(actual[layer], expected, 1e-12)
    close(actual.sum(dim=-1), 1.0)
    assert (actual.triu(diagonal=1) == 0).all()
