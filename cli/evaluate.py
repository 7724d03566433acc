"""`attn evaluate`: the exact loss of a run on its validation split, or on a file."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from cli.config import Config
from cli.config_file import load_config
from cli.material import task_of, task_windows, text_sizes, text_windows
from cli.run_arguments import open_model
from data.dataset import encode_corpus
from data.storage import open_ids
from transformer.errors import UserError
from transformer.inference.evaluation import Evaluation, EvaluationBatch, TextSizes
from transformer.inference.evaluation import evaluate as score
from transformer.run_folder import Run
from transformer.training.device import autocast, choose_precision


def evaluate(
    run: str | None,
    *,
    text: Path | None,
    checkpoint: str,
    stride: int | None,
    device: str,
    as_json: bool,
    runs: Path,
) -> None:
    """Write a run's scores to stdout."""
    opened = open_model(run, checkpoint, device, runs)
    config = load_config(opened.folder.config_file)
    windows, sizes = _windows(opened, config, text, stride)
    where = opened.model.embedding.weight.device
    with autocast(where, choose_precision(config.training.precision, where)):  # as while it was trained
        result = score(opened.model, windows, sizes=sizes)
    sys.stdout.write(_as_json(result, opened) if as_json else _as_text(result, opened))


def _windows(
    opened: Run, config: Config, text: Path | None, stride: int | None
) -> tuple[Iterator[EvaluationBatch], TextSizes | None]:
    """What is scored. Raises UserError where the run has no text, DataError where a text cannot be used."""
    if text is None and config.data.task is not None:
        if stride is not None:
            raise UserError("--stride: has no effect on a task, whose rows stand alone; leave it out")
        return task_windows(task_of(config), max_tokens=config.training.eval_tokens), None
    if text is None:
        limit = config.training.eval_tokens
        ids = open_ids(opened.folder.validation_file, opened.tokenizer.get_vocab_size())
    else:
        limit = None
        ids = encode_corpus(opened.tokenizer, str(text) if text.is_absolute() else f"./{text}")  # never a built-in
    windows = text_windows(ids, opened.config, stride=stride, max_tokens=limit)
    return windows, text_sizes(opened.tokenizer)


def _as_json(result: Evaluation, opened: Run) -> str:
    answer = {
        "loss": result.loss,
        "perplexity": result.perplexity,
        "bits_per_byte": result.bits_per_byte,
        "bits_per_character": result.bits_per_character,
        "accuracy": result.accuracy,
        "tokens": result.tokens,
        "step": opened.step,
        "checkpoint": str(opened.folder.checkpoint_path(opened.step)),
    }
    return json.dumps(answer) + "\n"


def _as_text(result: Evaluation, opened: Run) -> str:
    rows = [
        ("loss", f"{result.loss:.4f}", "nats per token"),
        ("perplexity", f"{result.perplexity:.4f}", ""),
        ("bits per byte", _optional(result.bits_per_byte), ""),
        ("bits per character", _optional(result.bits_per_character), ""),
        ("accuracy", _optional(result.accuracy), "of the tokens that can be predicted"),
        ("tokens", f"{result.tokens}", ""),
        ("step", f"{opened.step}", f"of run {opened.folder.name}"),
    ]
    shown = [f"{name:<20}{value:>10}  {note}".rstrip() for name, value, note in rows if value]
    return "\n".join(shown) + "\n"


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
