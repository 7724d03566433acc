"""A resumed run equals an unbroken one, bit for bit."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from data.batches import evaluation_windows
from tests.training.small_runs import (
    CONTEXT,
    SHAPE,
    TEXT,
    evaluations_of,
    facts,
    memory,
    same,
    small_config,
    small_trainer,
    weights,
)
from transformer import open_run
from transformer.errors import UserError
from transformer.files import read_json, write_json
from transformer.inference.evaluation import EvaluationBatch
from transformer.model.config import ModelConfig
from transformer.training.config import TrainingConfig
from transformer.training.loop import Event, Finished, Trainer

SHAPES = {
    "dropout": ModelConfig(d_model=16, n_heads=2, n_layers=1, context_length=CONTEXT, dropout=0.3),
    "learned, tied": ModelConfig(
        d_model=12, n_heads=2, n_layers=1, context_length=CONTEXT, position="learned", tie_embeddings=True, bias=True
    ),
}


def resumed(path: Path, config: TrainingConfig, shape: ModelConfig) -> Trainer:
    """A trainer that begins with other weights and goes on from what the folder holds."""
    trainer = small_trainer(path, config, shape=shape)
    for parameter in trainer.model.parameters():
        parameter.data.fill_(0.5)
    trainer.resume(trainer.folder.newest_valid(pytest.fail))
    return trainer


def in_pieces(path: Path, config: TrainingConfig, shape: ModelConfig, stops: Sequence[int]) -> tuple[Trainer, list]:
    """Train, stopping after each of some steps and going on in a new trainer."""
    trainer, events = small_trainer(path, config, shape=shape), list[Event]()
    for stop in stops:
        events += trainer.run(lambda trainer=trainer, stop=stop: trainer.progress.step == stop)
        assert events[-1] == Finished(stop, "interrupted")
        trainer = resumed(path, config, shape)
        assert trainer.progress.step == stop
    return trainer, [*events, *trainer.run()]


@pytest.mark.parametrize(
    ("optimizer", "name", "n_steps", "stops"),
    [
        ("adamw", "dropout", 200, [73]),
        ("muon", "dropout", 200, [73]),
        ("muon", "learned, tied", 60, [1, 20, 21, 59]),
    ],
    ids=str,
)
def test_a_run_in_pieces_equals_a_run_at_once(
    tmp_path: Path, optimizer: str, name: str, n_steps: int, stops: list[int]
) -> None:
    shape = SHAPES[name]
    config = small_config(
        max_steps=n_steps,
        eval_every=20,
        gradient_accumulation=2,
        optimizer=optimizer,
        schedule="cosine",
        learning_rate=0.002,
    )
    whole = small_trainer(tmp_path / "whole", config, shape=shape)
    events = list(whole.run())
    assert whole.batches.position["window"] > 0  # the epochs do not end with a batch
    pieced, pieces = in_pieces(tmp_path / "pieces", config, shape, stops)
    assert facts(pieces) == facts(events)
    assert same(weights(pieced), weights(whole))
    assert same(memory(pieced), memory(whole))
    assert pieced.batches.position == whole.batches.position
    assert pieced.folder.steps() == whole.folder.steps()
    for which in ("best", "last"):
        assert pieced.folder.pointer(which) == whole.folder.pointer(which)


@pytest.mark.parametrize("stop", [5, 10, 15, 20])
def test_a_run_stopped_exactly_at_an_evaluation_makes_it_once(tmp_path: Path, stop: int) -> None:
    config = small_config(learning_rate=0.01)
    events = list(small_trainer(tmp_path / "whole", config).run())
    _, pieces = in_pieces(tmp_path / "pieces", config, SHAPE, [stop])
    assert facts(pieces) == facts(events)


def test_a_finished_run_goes_on_when_it_is_given_more_steps(tmp_path: Path) -> None:
    constant = {"schedule": "constant", "warmup_steps": 0}
    whole = small_trainer(tmp_path / "whole", small_config(max_steps=20, **constant))
    events = list(whole.run())
    first = small_trainer(tmp_path / "more", small_config(max_steps=10, **constant))
    before = list(first.run())
    more = resumed(tmp_path / "more", small_config(max_steps=20, **constant), SHAPE)
    assert facts([*before, *more.run()]) == facts(events)
    assert same(weights(more), weights(whole))


def test_a_finished_run_that_goes_on_has_nothing_to_do(tmp_path: Path) -> None:
    list(small_trainer(tmp_path, small_config()).run())
    assert list(resumed(tmp_path, small_config(), SHAPE).run()) == [Finished(20, "max_steps")]


def test_patience_remembers_the_evaluations_before_a_stop(tmp_path: Path) -> None:
    config = small_config(max_steps=400, learning_rate=0.01, patience=3)
    events = list(small_trainer(tmp_path / "whole", config).run())
    end = events[-1].step
    _, pieces = in_pieces(tmp_path / "pieces", config, SHAPE, [end - 7])
    assert pieces[-1] == events[-1] == Finished(end, "patience")


def improving(path: Path, config: TrainingConfig) -> Trainer:
    """A trainer that is evaluated on the text that it learns, so that each evaluation is the best."""

    def windows() -> Iterable[EvaluationBatch]:
        return evaluation_windows(TEXT, context_length=CONTEXT, batch_size=16)

    return small_trainer(path, config, validation=windows)


def test_a_run_that_falls_back_to_an_earlier_checkpoint_points_at_what_there_is(tmp_path: Path) -> None:
    config = small_config(max_steps=15, keep_checkpoints=3)
    whole = improving(tmp_path, config)
    losses = [each.result.loss for each in evaluations_of(whole.run())]
    assert whole.folder.pointer("best").step == whole.folder.pointer("last").step == 15
    (whole.folder.checkpoint_path(15) / "model.safetensors").write_bytes(b"broken")

    again = improving(tmp_path, config)
    again.resume(again.folder.newest_valid(lambda _: None))

    assert again.folder.steps() == [5, 10]
    for which in ("best", "last"):
        assert open_run(tmp_path, which).step == 10
        assert again.folder.pointer(which).loss == losses[1]
    assert evaluations_of(again.run())[-1].result.loss == losses[2]
    assert again.folder.pointer("best").step == again.folder.pointer("last").step == 15


def test_a_run_whose_best_checkpoint_is_gone_takes_the_next_evaluation_for_its_best(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(learning_rate=0.01))
    list(trainer.run(lambda: trainer.progress.step == 12))
    assert trainer.folder.pointer("best").step < 12
    shutil.rmtree(trainer.folder.checkpoint_path(trainer.folder.pointer("best").step))
    again = small_trainer(tmp_path, small_config(learning_rate=0.01))
    again.resume(again.folder.newest_valid(pytest.fail))
    assert open_run(tmp_path, "best").step == 12
    assert evaluations_of(again.run())[0].is_best
    assert open_run(tmp_path, "best").step == again.folder.pointer("best").step == 15


def test_a_kill_between_a_checkpoint_and_its_pointers_loses_no_best(tmp_path: Path) -> None:
    trainer = improving(tmp_path, small_config(max_steps=10))
    pointers = [trainer.folder.checkpoints_folder / f"{name}.json" for name in ("best", "last")]
    for event in trainer.run():
        if event.step == 6:
            before = [path.read_bytes() for path in pointers]
    after = [path.read_bytes() for path in pointers]
    assert before != after
    for path, content in zip(pointers, before, strict=True):
        path.write_bytes(content)

    again = improving(tmp_path, small_config(max_steps=10))
    again.resume(again.folder.newest_valid(pytest.fail))
    list(again.run())

    assert again.folder.pointer("best").step == 10
    assert [path.read_bytes() for path in pointers] == after


def test_a_checkpoint_that_does_not_say_how_far_training_came_is_refused(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=2))
    list(trainer.run())
    file = trainer.folder.checkpoint_path(2) / "checkpoint.json"
    record = read_json(file)
    for key in ("progress", "data_position"):
        write_json(file, {name: value for name, value in record.items() if name != key})
        with pytest.raises(UserError, match=r"checkpoint\.json: says nothing of how far training had come"):
            trainer.resume(trainer.folder.checkpoint("last"))


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    list(small_trainer(tmp_path, small_config(max_steps=2)).run())
    other = small_trainer(tmp_path, small_config(), shape=SHAPES["learned, tied"])
    with pytest.raises(UserError, match=r"model\.safetensors: does not fit its configuration"):
        other.resume(other.folder.checkpoint("last"))
