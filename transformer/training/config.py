"""How a model is trained: every `training:` key of a configuration file, with its meaning and its range."""

from typing import Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from transformer.model.config import STRICT


class TrainingConfig(BaseModel):
    """Optimizer, schedule, evaluation and checkpoints. One optimizer update is a step."""

    model_config = STRICT

    max_steps: int = Field(2000, ge=0, description="Number of optimizer updates.")
    batch_size: int = Field(32, ge=1, description="Sequences per step.")
    gradient_accumulation: int = Field(
        1, ge=1, description="Parts in which the batch of a step is computed, to save memory; must divide batch_size."
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "muon", description="adamw for all weights, or muon for hidden matrices and adamw for the rest."
    )
    learning_rate: float = Field(4e-3, gt=0.0, le=10.0, description="Peak rate of AdamW.")
    muon_learning_rate: float | None = Field(
        None, gt=0.0, le=10.0, description="Peak rate of Muon. null: 5 x learning_rate. Only with muon."
    )
    min_learning_rate: float = Field(
        0.0, ge=0.0, description="Rate at the end of the decay; Muon's falls in the same proportion."
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "linear", description="Shape of the decay after the warmup."
    )
    warmup_steps: int | None = Field(
        None, ge=0, description="Steps over which the rate rises; below max_steps. null: a twentieth of them."
    )
    weight_decay: float = Field(0.1, ge=0.0, description="Decay of matrices towards 0; vectors are spared.")
    beta1: float = Field(0.9, ge=0.0, lt=1.0, description="AdamW's memory of the gradient.")
    beta2: float = Field(0.95, ge=0.0, lt=1.0, description="AdamW's memory of the squared gradient.")
    grad_clip: float | None = Field(
        1.0, gt=0.0, description="Largest norm of the gradient; above it the gradient is scaled. null: none."
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="Type of the arithmetic. auto: bf16 on a GPU that has it, else fp32."
    )
    compile: Literal["auto"] | bool = Field(
        "auto", description="Use torch.compile. auto: on CUDA, in runs long enough to repay it."
    )
    eval_every: int = Field(200, ge=1, description="Steps between evaluations; one follows the last step too.")
    eval_tokens: int | None = Field(
        None, ge=1, description="Evaluate on this many tokens of the validation split. null: all of it."
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after this many evaluations without a better loss. null: never."
    )
    target_loss: float | None = Field(
        None, gt=0.0, description="Stop when the validation loss is at or below this. null: never."
    )
    save_every: int | None = Field(None, ge=1, description="Steps between checkpoints. null: at each evaluation.")
    keep_checkpoints: int = Field(1, ge=1, description="Number of newest checkpoints kept; the best is kept as well.")

    @field_validator("gradient_accumulation")
    @classmethod
    def _accumulation_divides_batch(cls, parts: int, info: ValidationInfo) -> int:
        batch_size = info.data.get("batch_size")
        if batch_size is not None and batch_size % parts:
            raise ValueError(f"must divide batch_size: {batch_size} / {parts} is not a whole number")
        return parts

    @field_validator("muon_learning_rate")
    @classmethod
    def _muon_rate_needs_muon(cls, rate: float | None, info: ValidationInfo) -> float | None:
        if rate is not None and info.data.get("optimizer") == "adamw":
            raise ValueError("has no effect with optimizer: adamw; remove it or use optimizer: muon")
        return rate

    @field_validator("min_learning_rate")
    @classmethod
    def _decay_goes_down(cls, minimum: float, info: ValidationInfo) -> float:
        peak = info.data.get("learning_rate")
        if peak is not None and minimum > peak:
            raise ValueError(f"must not exceed learning_rate, {peak:g}")
        return minimum

    @field_validator("schedule")
    @classmethod
    def _constant_has_no_minimum(cls, schedule: str, info: ValidationInfo) -> str:
        if schedule == "constant" and info.data.get("min_learning_rate"):
            raise ValueError("constant never reaches min_learning_rate; remove one of the two")
        return schedule

    @field_validator("warmup_steps")
    @classmethod
    def _warmup_ends(cls, warmup_steps: int | None, info: ValidationInfo) -> int | None:
        max_steps = info.data.get("max_steps")
        if warmup_steps and max_steps is not None and warmup_steps >= max_steps:
            raise ValueError(f"must be below max_steps, {max_steps}")
        return warmup_steps
