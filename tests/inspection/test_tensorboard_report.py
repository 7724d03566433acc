"""What a measurement becomes in TensorBoard: which tags, with which numbers, described and grouped."""

import re

import numpy as np
import pytest
from tensorboard.backend.event_processing.data_ingester import DEFAULT_TENSOR_SIZE_GUIDANCE
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from transformer.inspection.probe import Measurement
from transformer.inspection.score_picture import SCALES
from transformer.inspection.tensorboard import TensorBoardWriter
from transformer.inspection.tensorboard_report import (
    measurement_scalars,
    write_layout,
    write_maps,
    write_measurement,
    write_score_pictures,
)
from transformer.inspection.tensorboard_tags import MAX_TAGS, SHOWN_LAYERS, description, layers_note, shown_layers

OF_TRAINING = {
    "loss/train": 1.0,
    "optimizer/learning_rate": 1.0,
    "optimizer/gradient_norm": 1.0,
    "speed/tokens_per_second": 1.0,
}
OF_EVALUATION = {"loss/validation": 1.0, "validation/bits_per_byte": 1.0, "validation/accuracy": 1.0}


def measurement(n_layers: int, n_heads: int) -> Measurement:
    rng = np.random.default_rng(3)
    scores = {name: rng.random((n_layers, n_heads)) for name in SCALES}
    return Measurement(scores, {}, [[[]] * n_heads] * n_layers, copy_gap=1.25, in_context=-0.5)


def write_run(folder, n_layers: int, n_heads: int, n_pictures: int) -> EventAccumulator:
    """A whole run of 10,000 steps with the default settings; a probe at every picture."""
    seen = measurement(n_layers, n_heads)
    maps = np.tril(np.ones((n_layers, n_heads, 2, 2)))
    with TensorBoardWriter(folder) as board:
        board.hyperparameters({"width": 7}, ["loss/train"])
        write_layout(board)
        for step in range(10, 10_001, 10):
            board.scalars(step, OF_TRAINING)
        for step in range(200, 10_001, 200):
            board.scalars(step, OF_EVALUATION, important=True)
            board.text("sample", step, "x" * 600)
        for step in range(0, 10_001, 10_000 // (n_pictures - 1)):
            write_measurement(board, step, seen, seconds=0.25)
            write_score_pictures(board, step, seen, baseline={"entropy": 1.0})
            write_maps(board, step, maps, tokens=["a", "b"])
    return EventAccumulator(str(folder), tensor_size_guidance=DEFAULT_TENSOR_SIZE_GUIDANCE).Reload()


@pytest.fixture(scope="module")
def run_of_four_layers(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("four"), 4, 3, 10)


def test_a_run_has_these_tags(run_of_four_layers):
    tags = set(run_of_four_layers.Tags()["tensors"])
    assert tags == {
        *OF_TRAINING,
        *OF_EVALUATION,
        "sample",
        "_hparams_/experiment",
        "_hparams_/session_start_info",
        "custom_scalars__config__",
        "attention/best_induction_head",
        "attention/best_previous_token_head",
        "attention/copy_gap",
        "attention/in_context",
        "attention/sink_rate",
        "speed/probe_seconds",
        *(f"attention/layer_{layer}" for layer in range(4)),
        *(f"per_layer/{name}_{layer}" for name in ("entropy", "max_logit") for layer in range(4)),
        *(f"scores/{name}" for name in SCALES),
    }


def test_every_tag_is_described_where_tensorboard_shows_it(run_of_four_layers):
    for tag in run_of_four_layers.Tags()["tensors"]:
        if not tag.startswith(("_hparams_", "custom_scalars")):
            assert run_of_four_layers.SummaryMetadata(tag).summary_description == description(tag) != "", tag


def test_every_picture_of_every_tag_is_kept_by_a_stock_tensorboard(run_of_four_layers):
    for tag in run_of_four_layers.Tags()["tensors"]:
        if tag.startswith(("attention/layer", "scores/")):
            assert [event.step for event in run_of_four_layers.Tensors(tag)] == list(range(0, 10_001, 1_111))


def test_a_run_with_very_many_layers_stays_within_tags_and_bytes(tmp_path):
    tags = write_run(tmp_path, 131, 2, 2).Tags()["tensors"]
    assert SHOWN_LAYERS < 131
    assert len(tags) <= MAX_TAGS
    assert {"attention/layer_0", "attention/layer_130", "per_layer/entropy_130", "scores/entropy"} <= set(tags)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 25e6


@pytest.mark.parametrize("n_layers", [1, 2, SHOWN_LAYERS, SHOWN_LAYERS + 1, 131, 1_009])
def test_the_layers_that_are_shown_are_distinct_even_and_said(n_layers):
    layers = shown_layers(n_layers)
    assert layers[0] == 0
    assert layers[-1] == n_layers - 1
    assert len(set(layers)) == len(layers) == min(n_layers, SHOWN_LAYERS)
    gaps = np.diff(layers)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    assert (layers_note(n_layers) is None) == (len(layers) == n_layers)


def test_the_numbers_are_the_best_the_mean_and_the_largest():
    seen = measurement(2, 3)
    seen.scores["induction"][:] = [[0.1, 0.2, 0.3], [0.4, 0.9, 0.5]]
    seen.scores["first_token"][:] = [[0.0, 0.1, 0.2], [0.3, 0.4, 0.8]]
    seen.scores["entropy"][:] = [[0.5, 1.0, np.nan], [np.nan] * 3]
    seen.scores["max_logit"][:] = [[3, 11, 5], [2, np.nan, 7]]
    values = measurement_scalars(seen)
    assert values["attention/best_induction_head"] == 0.9
    assert values["attention/sink_rate"] == pytest.approx(0.3)
    assert values["attention/copy_gap"] == 1.25
    assert values["attention/in_context"] == -0.5
    assert values["per_layer/entropy_0"] == 0.75
    assert np.isnan(values["per_layer/entropy_1"])
    assert (values["per_layer/max_logit_0"], values["per_layer/max_logit_1"]) == (11, 7)


def test_the_layout_groups_tags_that_a_run_has(run_of_four_layers):
    (event,) = run_of_four_layers.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    tags = run_of_four_layers.Tags()["tensors"]
    assert [group.title for group in layout.category] == ["Learning", "Heads form", "Attention per layer", "Machine"]
    for group in layout.category:
        for chart in group.chart:
            for pattern in chart.multiline.tag:
                assert any(re.match(pattern, tag) for tag in tags), pattern
    charts = {chart.title: list(chart.multiline.tag) for chart in layout.category[0].chart}
    assert next(iter(charts.values())) == ["loss/train$", "loss/validation$"]


def test_the_first_groups_of_the_first_tab_are_heads_and_losses(run_of_four_layers):
    plotted = [tag for tag in run_of_four_layers.Tags()["tensors"] if "/" in tag and not tag.startswith("_")]
    assert sorted({tag.split("/")[0] for tag in plotted})[:2] == ["attention", "loss"]
