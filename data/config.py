"""What a model is trained on: every `data:` key of a configuration file, with its meaning and its range."""

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

TaskName = Literal["copy", "reverse", "sort", "addition", "brackets", "induction"]
CorpusName = Literal["python-docs", "tinyshakespeare"]

TASKS: tuple[str, ...] = get_args(TaskName)
CORPORA: tuple[str, ...] = get_args(CorpusName)

DEFAULT_VALIDATION_FRACTION = 0.1
DEFAULT_BPE_VOCABULARY = 1024
DEFAULT_TASK_SYMBOLS = 64


class DataConfig(BaseModel):
    """A corpus with its tokenizer, or a generated task, which brings its own."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )

    source: str | list[str] = Field(
        "python-docs",
        min_length=1,
        description="Text to train on: a file, a glob, a folder or a list of them (.txt, .md, .jsonl with a `text` "
        f"field); a built-in corpus ({', '.join(CORPORA)}); or a task ({', '.join(TASKS)}).",
    )
    validation: str | list[str] | None = Field(
        None,
        min_length=1,
        description="Text to evaluate on, named like source. null: the last part of source. Not for tasks.",
    )
    validation_fraction: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        description=f"Share of source kept for evaluation, from its end. null: {DEFAULT_VALIDATION_FRACTION}. "
        "Only without validation; not for tasks.",
    )
    tokenizer: Literal["char", "byte", "bpe"] | None = Field(
        None, description="Unit of text that is one token. null: bpe. Not for tasks."
    )
    vocab_size: int | None = Field(
        None,
        ge=2,
        le=1_000_000,
        description=f"Tokens that bpe learns, at most (null: {DEFAULT_BPE_VOCABULARY}), or symbols of the induction, "
        f"copy, reverse and sort tasks (null: {DEFAULT_TASK_SYMBOLS}).",
    )

    # rules between keys follow here as field validators; helper A writes them
