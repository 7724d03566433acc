"""A run small enough for a test: random text of 13 tokens, a Transformer of two blocks, and all that trains it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from data.batches import WindowBatches, evaluation_windows
from data.tokenizer import char_tokenizer
from transformer.files import Json, write_text
from transformer.inference.evaluation import EvaluationBatch
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.run_folder import RunFolder
from transformer.training.config import TrainingConfig
from transformer.training.loop import Batches, Evaluated, Event, Finished, Step, Trainer
from transformer.training.optimizers import optimizer_tensors

VOCABULARY = "abcdefghijklm"
CONTEXT = 7
SHAPE = ModelConfig(d_model=16, n_heads=2, n_layers=2, context_length=CONTEXT)
TEXT = np.random.default_rng(3).integers(len(VOCABULARY), size=331).astype(np.uint16)
VALIDATION = np.random.default_rng(4).integers(len(VOCABULARY), size=101).astype(np.uint16)


def small_config(**changes: object) -> TrainingConfig:
    defaults: dict[str, object] = {"max_steps": 20, "batch_size": 4, "eval_every": 5, "optimizer": "muon"}
    return TrainingConfig(**{**defaults, **changes})


def small_trainer(
    path: Path,
    config: TrainingConfig,
    *,
    shape: ModelConfig = SHAPE,
    seed: int = 5,
    record: Json | None = None,
    batches: Batches | None = None,
    validation: Callable[[], Iterable[EvaluationBatch]] | None = None,
    precision: torch.dtype = torch.float32,
    compiled: bool = False,
) -> Trainer:
    """A trainer whose run folder is `path`, tokenizer included."""
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    write_text(folder.tokenizer_file, char_tokenizer(VOCABULARY).to_str())

    def windows() -> Iterable[EvaluationBatch]:
        return evaluation_windows(VALIDATION, context_length=CONTEXT, batch_size=3, max_tokens=config.eval_tokens)

    return Trainer(
        Transformer(shape, len(VOCABULARY), seed=seed),
        batches or WindowBatches(TEXT, context_length=CONTEXT, batch_size=config.batch_size, seed=seed),
        validation or windows,
        config,
        folder=folder,
        record=record or {},
        seed=seed,
        precision=precision,
        compiled=compiled,
    )


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of a model's weights."""
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def memory(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of what the optimizers remember."""
    return {name: value.clone() for name, value in optimizer_tensors(trainer.model, trainer.optimizers).items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors agree bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def facts(events: Iterable[Event]) -> list[Event]:
    """Events without the time they took and without the last word."""
    return [
        replace(event, seconds=0.0) if isinstance(event, Step) else event
        for event in events
        if not isinstance(event, Finished)
    ]


def steps_of(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def evaluations_of(events: Iterable[Event]) -> list[Evaluated]:
    return [event for event in events if isinstance(event, Evaluated)]
