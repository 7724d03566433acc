"""Probes, and what measuring a model on them says and leaves untouched."""

import json
import math

import numpy as np
import pytest
import torch

from tests.model.test_attention import POSITIONS, awakened
from transformer import ModelConfig, Transformer, attention_maps
from transformer.inspection import probe as probes
from transformer.inspection import scores
from transformer.inspection.probe import BADGES, NAMES, Probe, Rows, baseline, bootstrap, make_repeats, measure

SMALL = ModelConfig(d_model=24, n_heads=6, n_kv_heads=2, n_layers=2, context_length=17)


def probe_of(vocab_size: int, length: int, *, n_text: int = 5) -> Probe:
    repeats, periods = make_repeats(vocab_size, length, seed=1, rows=7)
    text = torch.randint(vocab_size, (n_text, length), generator=torch.Generator().manual_seed(2))
    return Probe(text[0], repeats, periods, text)


def test_rows_repeat_distinct_tokens_with_periods_from_8_to_half_their_length() -> None:
    repeats, periods = make_repeats(64, 64, seed=3)
    assert repeats.shape == (32, 64)
    assert repeats.dtype == torch.int64
    assert set(periods) == set(range(8, 33))
    for row, period in zip(repeats.tolist(), periods, strict=True):
        assert len(set(row[:period])) == period
        assert all(row[i] == row[i - period] for i in range(period, 64))
        assert 0 <= min(row) <= max(row) < 64


def test_repeats_follow_from_their_seed_alone() -> None:
    torch.manual_seed(1)
    first = make_repeats(50, 40, seed=3)[0]
    torch.manual_seed(2)
    assert torch.equal(first, make_repeats(50, 40, seed=3)[0])
    assert not torch.equal(first, make_repeats(50, 40, seed=4)[0])


@pytest.mark.parametrize(
    ("vocab_size", "length", "expected"),
    [(64, 1, {1}), (64, 2, {1}), (64, 3, {1}), (64, 7, {3}), (64, 19, {8, 9}), (5, 64, {5}), (1, 64, {1}), (1, 1, {1})],
)
def test_short_rows_and_small_vocabularies_take_the_periods_that_they_can(
    vocab_size: int, length: int, expected: set[int]
) -> None:
    repeats, periods = make_repeats(vocab_size, length, seed=0)
    assert repeats.shape == (32, length)
    assert set(periods) == expected


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_measurement_is_every_score_on_its_own_rows(position: str, window: int | None) -> None:
    model = awakened(SMALL.model_copy(update={"position": position, "window": window}))
    probe = probe_of(13, 17)
    measured = measure(model, probe)
    assert tuple(measured.scores) == NAMES
    for score in scores.ATTENTION_SCORES:
        on_repeats = score.name in ("previous_token", "induction", "duplicate_token")
        ids = probe.repeats if on_repeats else probe.text
        expected = score(attention_maps(model, ids), ids)
        np.testing.assert_allclose(measured.scores[score.name], expected, atol=1e-6)
    np.testing.assert_allclose(measured.scores["knockout"], scores.knockout(model, probe.text).mean(dim=0), atol=1e-6)
    np.testing.assert_array_equal(measured.scores["copying"], scores.copying(model))
    assert measured.scores["max_logit"].min() > 0


def test_intervals_hold_their_scores_and_belong_to_means_over_rows_alone() -> None:
    measured = measure(awakened(SMALL), probe_of(13, 17))
    assert set(NAMES) - set(measured.interval) == {"copying", "max_logit"}
    for name, interval in measured.interval.items():
        assert interval.shape == (2, 6, 2)
        assert (interval[..., 0] <= measured.scores[name]).all()
        assert (measured.scores[name] <= interval[..., 1]).all()


def test_losses_of_copies_and_of_the_context_are_those_of_the_model() -> None:
    model, probe = awakened(SMALL), probe_of(13, 17)
    measured = measure(model, probe)
    with torch.no_grad():
        repeats = -model(probe.repeats).log_softmax(dim=-1)[:, :-1].gather(2, probe.repeats[:, 1:, None])[..., 0]
        text = -model(probe.text).log_softmax(dim=-1)[:, :-1].gather(2, probe.text[:, 1:, None])[..., 0]
    pairs = [
        (token, period, loss)
        for row, period in zip(repeats.tolist(), probe.periods, strict=True)
        for token, loss in enumerate(row, start=1)
    ]
    first = [loss for token, period, loss in pairs if token < period]
    copies = [loss for token, period, loss in pairs if token > period]
    assert measured.copy_gap == pytest.approx(sum(first) / len(first) - sum(copies) / len(copies), abs=1e-5)
    assert measured.in_context == pytest.approx((text[:, -1].mean() - text[:, 1].mean()).item(), abs=1e-5)


def test_measuring_leaves_the_model_and_all_randomness_untouched() -> None:
    model = awakened(SMALL.model_copy(update={"dropout": 0.3})).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = measure(model, probe_of(13, 17)).line(0, 0.0)
    assert model.training
    assert all(part.training for part in model.modules())
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert measure(model, probe_of(13, 17)).line(0, 0.0) == first
    assert measure(model.eval(), probe_of(13, 17)).line(0, 0.0) == first


@pytest.mark.parametrize(("length", "n_rows"), [(17, 15), (64, 4), (128, 4), (32, 8)])
def test_knockout_reads_some_256_tokens_and_four_rows_at_least(
    length: int, n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(probes, "knockout", lambda _, ids: read.append(ids.shape) or torch.zeros(len(ids), 1, 1))
    model = Transformer(ModelConfig(d_model=2, n_heads=1, n_layers=1, context_length=256), 13)
    measure(model, probe_of(13, length, n_text=40))
    assert read == [(n_rows, length)]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("vocab_size", [1, 2, 13])
def test_the_shortest_rows_are_measured_as_far_as_they_can(vocab_size: int, length: int) -> None:
    model = Transformer(ModelConfig(d_model=2, n_heads=1, n_layers=1, context_length=4), vocab_size)
    probe = probe_of(vocab_size, length)
    measured = measure(model, probe)
    assert np.isnan(measured.scores["entropy"]).all() == (length < 2)
    assert np.isnan(measured.scores["previous_token"]).all() == (length < 3)
    assert all(math.isfinite(value) for value in baseline(probe).values())
    json.dumps(measured.line(0, 0.0), allow_nan=False)


def test_a_line_is_json_with_null_for_what_is_not_finite() -> None:
    model = awakened(SMALL)
    with torch.no_grad():
        model.layers()[1].attention.query.weight[:4] = math.nan
    line = json.loads(json.dumps(measure(model, probe_of(13, 17)).line(500, 0.05), allow_nan=False))
    assert (line["format"], line["step"], line["seconds"]) == (1, 500, 0.05)
    assert all(line["scores"][name][1][0] is None for name in ("entropy", "induction", "max_logit", "knockout"))
    assert all(line["interval"][name][1][0] == [None, None] for name in ("entropy", "induction", "knockout"))
    assert line["copy_gap"] is None
    assert all(isinstance(value, float) for value in line["scores"]["entropy"][0] + line["scores"]["entropy"][1][1:])
    assert all(isinstance(value, float) for value in line["scores"]["copying"][1])
    assert line["badges"][1][0] == []


def test_measuring_in_bfloat16_agrees_with_single_precision() -> None:
    probe = probe_of(13, 17)
    coarse = measure(awakened(SMALL).to(torch.bfloat16), probe)
    for name, value in measure(awakened(SMALL), probe).scores.items():
        np.testing.assert_allclose(coarse.scores[name], value, atol=0.1 if name == "knockout" else 0.03, rtol=0.02)


def test_the_baseline_is_a_uniform_head_on_the_same_rows() -> None:
    probe = probe_of(13, 17)
    values = baseline(probe)
    harmonic = sum(1 / n for n in range(1, 18))
    assert set(values) == set(NAMES) - {"copying", "max_logit", "knockout"}
    assert values["entropy"] == pytest.approx(1)
    assert values["distance"] == pytest.approx(0.5)
    assert values["previous_token"] == pytest.approx((harmonic - 1.5) / 15)
    matches = [(i // p) / (i + 1) for p in probe.periods for i in range(p, 17)]
    assert values["induction"] == values["duplicate_token"] == pytest.approx(sum(matches) / len(matches))


def test_an_interval_is_the_spread_of_means_over_redrawn_rows() -> None:
    rng = np.random.default_rng(0)
    sums, counts = rng.normal(size=(11, 2, 3)), rng.integers(1, 5, size=11).astype(float)
    interval = bootstrap(Rows(sums, counts), seed=4)
    drawn = np.random.default_rng(4).integers(11, size=(1000, 11))
    means = np.array([sums[rows].sum(axis=0) / counts[rows].sum() for rows in drawn])
    np.testing.assert_allclose(interval, np.moveaxis(np.quantile(means, [0.025, 0.975], axis=0), 0, -1), atol=1e-12)


def test_one_row_has_no_interval_and_a_broken_head_spoils_no_other() -> None:
    assert np.isnan(bootstrap(Rows(np.ones((1, 2, 3)), np.ones(1)), seed=0)).all()
    sums = np.ones((5, 2, 3))
    sums[3, 1, 2] = np.nan
    interval = bootstrap(Rows(sums, np.ones(5)), seed=0)
    assert np.isnan(interval[1, 2]).all()
    assert np.isfinite(np.delete(interval.reshape(6, 2), 5, axis=0)).all()


def intervals(**ends: tuple[float, float]) -> dict[str, np.ndarray]:
    nowhere = dict.fromkeys(NAMES, (0.0, 0.4)) | {"knockout": (0.002, 0.003)}
    return {name: np.array([[value]]) for name, value in (nowhere | ends).items()}


@pytest.mark.parametrize(
    ("badge", "name", "certain", "doubtful"),
    [
        ("previous-token", "previous_token", (0.5, 0.6), (0.49, 0.99)),
        ("induction", "induction", (0.5, 0.6), (0.49, 0.99)),
        ("duplicate", "duplicate_token", (0.5, 0.6), (0.49, 0.99)),
        ("sink", "first_token", (0.5, 0.6), (0.49, 0.99)),
        ("diffuse", "entropy", (0.95, 0.96), (0.94, 0.99)),
        ("dead", "knockout", (-0.001, 0.001), (-0.0011, 0.0)),
        ("dead", "knockout", (0.0, 0.0), (0.0, 0.0011)),
    ],
)
def test_a_badge_needs_its_whole_interval_beyond_the_threshold(
    badge: str, name: str, certain: tuple[float, float], doubtful: tuple[float, float]
) -> None:
    assert badge in BADGES
    assert probes.badges(intervals(**{name: certain})) == [[[badge]]]
    assert probes.badges(intervals(**{name: doubtful})) == [[[]]]
    assert probes.badges(intervals(**{name: (math.nan, math.nan)})) == [[[]]]


def untrained(position: str) -> tuple[Transformer, Probe]:
    model = Transformer(ModelConfig(d_model=64, n_layers=2, n_heads=4, context_length=64, position=position), 64)
    repeats, periods = make_repeats(64, 64, seed=0)
    text = torch.randint(64, (8, 64), generator=torch.Generator().manual_seed(0))
    return model, Probe(text[0], repeats, periods, text)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "none"])
def test_an_untrained_model_attends_almost_evenly_and_copies_nothing(position: str) -> None:
    model, probe = untrained(position)
    measured, uniform = measure(model, probe), baseline(probe)
    assert measured.scores["entropy"].min() > 0.85  # logits of deviation 1 take half a nat of some 3.4
    for name in ("distance", "previous_token", "current_token", "first_token", "duplicate_token", "induction"):
        assert measured.scores[name].mean() == pytest.approx(uniform[name], abs=0.015)
        assert measured.scores[name] == pytest.approx(uniform[name], abs=0.05)
    assert measured.copy_gap == pytest.approx(0, abs=1e-6)
    assert measured.in_context == pytest.approx(0, abs=1e-6)
    assert (measured.scores["knockout"] == 0).all()
    assert (measured.scores["copying"] == 0).all()


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "none"])
def test_heads_without_queries_score_the_baseline(position: str) -> None:
    model, probe = untrained(position)
    with torch.no_grad():
        for block in model.layers():
            block.attention.query.weight.zero_()
    measured = measure(model, probe)
    for name, value in baseline(probe).items():
        np.testing.assert_allclose(measured.scores[name], value, atol=1e-6)
    assert (measured.scores["max_logit"] == 0).all()
    assert measured.badges == [[["diffuse", "dead"]] * 4] * 2
