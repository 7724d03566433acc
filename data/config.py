"""What a model is trained on: every `data:` key of a configuration file, with its meaning and its range."""

from typing import Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

TaskName = Literal["copy", "reverse", "sort", "addition", "brackets", "induction"]
CorpusName = Literal["python-docs", "tinyshakespeare"]
TokenizerName = Literal["char", "byte", "bpe"]

TASKS: tuple[str, ...] = get_args(TaskName)
CORPORA: tuple[str, ...] = get_args(CorpusName)
TASKS_OF_FIXED_SYMBOLS = ("addition", "brackets")

DEFAULT_VALIDATION_FRACTION = 0.1
DEFAULT_TOKENIZER: TokenizerName = "bpe"
DEFAULT_BPE_VOCABULARY = 1024
MIN_BPE_VOCABULARY = 257
DEFAULT_TASK_SYMBOLS = 64
MAX_TASK_SYMBOLS = 64


class DataConfig(BaseModel):
    """A corpus with its tokenizer, or a generated task, which brings its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)

    source: str | list[str] = Field(
        "python-docs",
        min_length=1,
        description="Text to train on: a file, a glob, a folder (its .txt, .md and .jsonl files) or a list of them; "
        f"a built-in corpus ({', '.join(CORPORA)}); or a task ({', '.join(TASKS)}). "
        "A file with one of these names is written ./copy.",
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
    tokenizer: TokenizerName | None = Field(
        None, description=f"Unit of text that is one token. null: {DEFAULT_TOKENIZER}. Not for tasks."
    )
    vocab_size: int | None = Field(
        None,
        ge=2,
        le=1_000_000,
        description=f"Tokens that bpe learns, at most ({MIN_BPE_VOCABULARY} or more; null: {DEFAULT_BPE_VOCABULARY}), "
        f"or symbols of the copy, reverse, sort and induction tasks (2 to {MAX_TASK_SYMBOLS}; "
        f"null: {DEFAULT_TASK_SYMBOLS}).",
    )

    @field_validator("source", "validation")
    @classmethod
    def _names_are_not_empty(cls, source: str | list[str] | None) -> str | list[str] | None:
        if isinstance(source, list) and "" in source:
            raise ValueError("one of the names is empty")
        if isinstance(source, list) and (tasks := [name for name in source if name in TASKS]):
            raise ValueError(f"{tasks[0]} is a task and stands alone; a file of that name is ./{tasks[0]}")
        return source

    @field_validator("validation")
    @classmethod
    def _validation_is_text(cls, validation: str | list[str] | None, info: ValidationInfo) -> str | list[str] | None:
        if isinstance(validation, str) and validation in TASKS:
            raise ValueError(f"{validation} is a task, not text; a file of that name is ./{validation}")
        if validation is not None:
            _refuse_for_task(info, "evaluated on rows of its own")
        return validation

    @field_validator("validation_fraction")
    @classmethod
    def _fraction_splits_source(cls, fraction: float | None, info: ValidationInfo) -> float | None:
        if fraction is not None:
            _refuse_for_task(info, "evaluated on rows of its own")
            if info.data.get("validation") is not None:
                raise ValueError("has no effect with validation; remove one of the two")
        return fraction

    @field_validator("tokenizer")
    @classmethod
    def _task_brings_tokenizer(cls, tokenizer: TokenizerName | None, info: ValidationInfo) -> TokenizerName | None:
        if tokenizer is not None:
            _refuse_for_task(info, "one token per symbol")
        return tokenizer

    @field_validator("vocab_size")
    @classmethod
    def _vocabulary_has_an_effect(cls, vocab_size: int | None, info: ValidationInfo) -> int | None:
        if vocab_size is None or "source" not in info.data or "tokenizer" not in info.data:
            return vocab_size
        source, tokenizer = info.data["source"], info.data["tokenizer"]
        if source in TASKS_OF_FIXED_SYMBOLS or tokenizer in ("char", "byte"):
            owner = f"source: {source}" if source in TASKS_OF_FIXED_SYMBOLS else f"tokenizer: {tokenizer}"
            raise ValueError(f"has no effect with {owner}, whose vocabulary is given; remove it")
        if source in TASKS and vocab_size > MAX_TASK_SYMBOLS:
            raise ValueError(f"must be at most {MAX_TASK_SYMBOLS}, the symbols that tasks have")
        if source not in TASKS and vocab_size < MIN_BPE_VOCABULARY:
            raise ValueError(f"must be at least {MIN_BPE_VOCABULARY} for bpe: 256 bytes and an end of text")
        return vocab_size

    @property
    def task(self) -> TaskName | None:
        """The task, if that is what source names."""
        return cast(TaskName, self.source) if self.source in TASKS else None

    @property
    def tokenizer_kind(self) -> TokenizerName:
        """`tokenizer`, or the default."""
        return self.tokenizer or DEFAULT_TOKENIZER

    @property
    def bpe_vocabulary(self) -> int:
        """Tokens that bpe learns, at most."""
        return self.vocab_size or DEFAULT_BPE_VOCABULARY

    @property
    def task_symbols(self) -> int:
        """Symbols of a task that has a choice of them."""
        return self.vocab_size or DEFAULT_TASK_SYMBOLS

    @property
    def held_out_fraction(self) -> float:
        """Share of source that is kept for evaluation where validation is not given."""
        return self.validation_fraction or DEFAULT_VALIDATION_FRACTION


def _refuse_for_task(info: ValidationInfo, what_it_does: str) -> None:
    source = info.data.get("source")
    if isinstance(source, str) and source in TASKS:
        raise ValueError(f"has no effect with source: {source}, a task ({what_it_does}); remove it")
