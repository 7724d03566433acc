"""Saving a training run so that it goes on exactly as if it had never stopped."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import cast

import torch
from torch import Tensor

from transformer.checkpoint_folder import Checkpoint, load_weights
from transformer.errors import UserError
from transformer.files import Json
from transformer.model.transformer import Transformer
from transformer.run_folder import RunFolder
from transformer.training.optimizers import optimizer_tensors, restore_optimizers


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    """Targets trained on."""
    seconds: float = 0.0
    """Time spent in steps."""
    best_loss: float | None = None
    best_step: int | None = None
    last_loss: float | None = None
    """Validation loss of the newest evaluation."""
    evaluated_step: int | None = None
    stale_evaluations: int = 0
    """Evaluations since the best one."""


def save(
    folder: RunFolder,
    model: Transformer,
    optimizers: list[torch.optim.Optimizer],
    *,
    progress: Progress,
    position: dict[str, int],
    record: Json,
    keep: int,
) -> None:
    """Write a checkpoint, point `last` at it (and `best` if it is the best), and delete what is no longer kept.

    Randomness needs no state here: every stream is derived from the seed and the step.
    """
    record = {
        **record,
        "model": model.config.model_dump(),
        "vocab_size": model.vocab_size,
        "parameters": model.n_parameters,
        "progress": asdict(progress),
        "data_position": position,
    }
    files = {"model.safetensors": model.state_dict(), "training.safetensors": optimizer_tensors(model, optimizers)}
    folder.write_checkpoint(progress.step, record, files)
    point(folder, progress)
    folder.prune(keep)


def point(folder: RunFolder, progress: Progress) -> None:
    """Let `best` and `last` mean the checkpoints that a progress speaks of."""
    if progress.best_step is not None:
        folder.point("best", progress.best_step, progress.best_loss)
    folder.point("last", progress.step, progress.last_loss)


def restore(
    checkpoint: Checkpoint,
    model: Transformer,
    optimizers: list[torch.optim.Optimizer],
    restore_position: Callable[[dict[str, int]], None],
) -> Progress:
    """Put everything back as `save` found it. Raises UserError where the checkpoint is damaged or does not fit.

    `optimizers` must be of the kind that the checkpoint was saved with.
    """
    load_weights(model, checkpoint.read_tensors("model.safetensors"), checkpoint.path / "model.safetensors")
    tensors: dict[str, Tensor] = checkpoint.read_tensors("training.safetensors")
    known = {field.name for field in fields(Progress)}
    progress, position = checkpoint.record.get("progress"), checkpoint.record.get("data_position")
    if not isinstance(progress, dict) or progress.keys() != known or not isinstance(position, dict):
        raise UserError(f"{checkpoint.path / 'checkpoint.json'}: says nothing of how far training had come")
    restore_optimizers(model, optimizers, tensors)
    restore_position(cast(dict[str, int], position))
    return Progress(**progress)
