"""What a configuration trains and evaluates on: a corpus or a task, in the shape that training and evaluation take."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from cli.config import Config
from cli.probe import make_probe, named_ids, probe_rows, probe_windows
from cli.terminal import character_progress, say
from data.batches import (
    EVALUATION_ROWS,
    TaskBatches,
    WindowBatches,
    check_length,
    evaluation_rows,
    evaluation_windows,
)
from data.config import DataConfig
from data.dataset import load, prepare
from data.storage import Dataset, StoredIds
from data.tasks import Task, make_task
from data.tokenizer import token_bytes, token_characters
from transformer.errors import UserError
from transformer.inference.evaluation import EvaluationBatch, TextSizes
from transformer.inspection.probe import Probe
from transformer.model.config import ModelConfig
from transformer.randomness import derive_seed

EVALUATION_TOKENS_AT_ONCE = 8192
"""Tokens in a batch of an evaluation; the result does not depend on it."""


@dataclass(frozen=True)
class Material:
    """Everything of the data that a run needs."""

    tokenizer: Tokenizer
    batches: WindowBatches | TaskBatches
    validation: Callable[[], Iterator[EvaluationBatch]]
    sizes: TextSizes | None
    """Lengths of the tokens' texts; None for tasks, whose symbols are no language."""
    probe: Probe
    """What attention is looked at on; its sentence is probe_text, or the first tokens of the validation data."""
    sample_ids: list[int]
    """What every sample continues."""
    description: str
    """What the data is, in words."""
    n_windows: int | None = None
    """Windows in an epoch; None for tasks, which never repeat."""
    key: str | None = None
    """Key of the encoded corpus in the cache."""
    validation_path: Path | None = None


def gather(config: Config, *, key: str | None = None) -> Material:
    """The material of a configuration; `key` names the encoded corpus of a run that goes on.

    Raises DataError, or UserError for a text of the configuration that the vocabulary cannot write.
    """
    return _task_material(config) if config.data.task else _text_material(config, _dataset(config.data, key))


def _dataset(config: DataConfig, key: str | None) -> Dataset:
    """The encoded corpus: by its key, as it was when the run began, or from its source."""
    kept = None if key is None else load(key, say=say)
    if kept is not None:
        return kept
    with character_progress("encoding") as progress:
        dataset = prepare(config, say=say, progress=progress)
    if key is not None and dataset.key != key:
        raise UserError(
            f"data.source {config.source} is no longer the text that this run was trained on, and its encoded form "
            "is gone from the cache; restore the text, or start a new run"
        )
    return dataset


def _text_material(config: Config, dataset: Dataset) -> Material:
    context_length = config.model.context_length
    check_length(len(dataset.train), context_length)
    check_length(len(dataset.validation), 1, name="the validation text")
    batches = WindowBatches(
        dataset.train,
        context_length=context_length,
        batch_size=config.training.batch_size,
        seed=derive_seed(config.seed, "data"),
    )
    return Material(
        tokenizer=dataset.tokenizer,
        batches=batches,
        validation=lambda: text_windows(dataset.validation, config.model, max_tokens=config.training.eval_tokens),
        sizes=text_sizes(dataset.tokenizer),
        probe=make_probe(config, dataset.tokenizer, probe_windows(dataset.validation, context_length)),
        sample_ids=named_ids("logging.sample_prompt", config.logging.sample_prompt, dataset.tokenizer),
        description=dataset.description,
        n_windows=batches.windows_per_epoch,
        key=dataset.key,
        validation_path=dataset.folder / "validation.npy",
    )


def _task_material(config: Config) -> Material:
    task = task_of(config)
    return Material(
        tokenizer=task.tokenizer,
        batches=TaskBatches(task, batch_size=config.training.batch_size),
        validation=lambda: task_windows(task, max_tokens=config.training.eval_tokens),
        sizes=None,
        probe=make_probe(config, task.tokenizer, probe_rows(task)),
        sample_ids=named_ids("logging.sample_prompt", config.logging.sample_prompt, task.tokenizer),
        description=f"task {task.name}, generated without end; vocabulary of {task.tokenizer.get_vocab_size()}",
    )


def task_of(config: Config) -> Task:
    """The task that a configuration names. Raises DataError where the context is too short for it."""
    return make_task(config.data, context_length=config.model.context_length, seed=derive_seed(config.seed, "data"))


def text_windows(
    ids: StoredIds, model: ModelConfig, *, stride: int | None = None, max_tokens: int | None = None
) -> Iterator[EvaluationBatch]:
    """Windows that score every token of a text once."""
    return evaluation_windows(
        ids,
        context_length=model.context_length,
        batch_size=_rows_at_once(model.context_length),
        stride=stride,
        max_tokens=max_tokens,
    )


def task_windows(task: Task, *, max_tokens: int | None = None) -> Iterator[EvaluationBatch]:
    """Rows of a task with the targets that can be predicted, at most about `max_tokens` targets of them."""
    wanted = EVALUATION_ROWS if max_tokens is None else max(1, max_tokens // task.context_length)
    return evaluation_rows(task, batch_size=_rows_at_once(task.context_length), n_rows=min(EVALUATION_ROWS, wanted))


def text_sizes(tokenizer: Tokenizer) -> TextSizes:
    """Bytes and characters of every token."""
    return TextSizes(torch.from_numpy(token_bytes(tokenizer)), torch.from_numpy(token_characters(tokenizer)))


def _rows_at_once(context_length: int) -> int:
    return max(1, EVALUATION_TOKENS_AT_ONCE // context_length)
