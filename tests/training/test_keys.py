"""No key of `training:` is inert: changing it changes what a run does."""

from pathlib import Path

import pytest
import torch

from tests.training.small_runs import evaluations_of, small_config, small_trainer, steps_of
from transformer.training.config import TrainingConfig
from transformer.training.device import choose_compile, choose_precision

CPU = torch.device("cpu")
CHANGES: dict[str, tuple[dict[str, object], object]] = {
    "max_steps": ({}, 7),
    "batch_size": ({}, 6),
    "gradient_accumulation": ({}, 2),
    "optimizer": ({}, "adamw"),
    "learning_rate": ({"muon_learning_rate": 0.02}, 0.005),
    "muon_learning_rate": ({}, 0.01),
    "min_learning_rate": ({}, 0.001),
    "schedule": ({}, "cosine"),
    "warmup_steps": ({}, 4),
    "weight_decay": ({}, 0.4),
    "beta1": ({}, 0.5),
    "beta2": ({}, 0.5),
    "grad_clip": ({}, 0.01),
    "precision": ({}, "bf16"),
    "compile": ({}, True),
    "eval_every": ({}, 5),
    "eval_tokens": ({}, 23),
    "patience": ({"learning_rate": 0.02, "eval_every": 1}, 1),
    "target_loss": ({}, 3.0),
    "save_every": ({"keep_checkpoints": 9}, 4),
    "keep_checkpoints": ({}, 3),
}


def outcome(path: Path, **changes: object) -> dict[str, object]:
    """Everything of a run that can be seen from outside."""
    config = small_config(**{"max_steps": 8, "eval_every": 3, **changes})
    compiled = choose_compile(config.compile, CPU, config.max_steps, say=pytest.fail)
    precision = choose_precision(config.precision, CPU)
    trainer = small_trainer(path, config, precision=precision, compiled=compiled)
    rows: list[int] = []
    trainer.model.register_forward_pre_hook(lambda model, inputs: rows.append(len(inputs[0]) if model.training else 0))
    events = list(trainer.run())
    return {
        "rows": max(rows),
        "compiled": trainer.forward is not trainer.model,
        "losses": [step.loss for step in steps_of(events)],
        "evaluations": evaluations_of(events),
        "end": events[-1],
        "checkpoints": trainer.folder.steps(),
    }


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a run without changes does."""
    return outcome(tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("key", TrainingConfig.model_fields)
def test_every_key_has_an_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: dict[str, object], key: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: lambda *arguments: function(*arguments))
    base, value = CHANGES[key]
    before = outcome(tmp_path / "base", **base) if base else usual
    assert outcome(tmp_path / "changed", **{**base, key: value}) != before


def test_nothing_else_has_an_effect(tmp_path: Path, usual: dict[str, object]) -> None:
    assert outcome(tmp_path) == usual


@pytest.mark.parametrize("key", ["weight_decay", "optimizer", "grad_clip", "eval_every"])
def test_keys_of_the_update_leave_the_first_loss_alone(tmp_path: Path, usual: dict[str, object], key: str) -> None:
    assert outcome(tmp_path, **{key: CHANGES[key][1]})["losses"][0] == usual["losses"][0]
