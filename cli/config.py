"""A whole configuration: the sections of every component, composed."""

from typing import Literal

from pydantic import BaseModel, Field

from data.config import DataConfig
from transformer.inspection.config import InspectionConfig
from transformer.model.config import STRICT, ModelConfig
from transformer.training.config import TrainingConfig


class LoggingConfig(BaseModel):
    """What is written down while a model trains."""

    model_config = STRICT

    log_every: int = Field(10, ge=1, description="Steps between lines of metrics.jsonl and TensorBoard's scalars.")
    sample_every: int | None = Field(None, ge=1, description="Steps between samples of text. null: at each evaluation.")
    sample_prompt: str = Field("", description="Text that every sample continues.")
    sample_tokens: int = Field(200, ge=0, description="Tokens per sample. 0: no samples.")


class Config(BaseModel):
    """One experiment."""

    model_config = STRICT

    seed: int = Field(1337, ge=0, lt=2**63, description="Where all randomness of the run comes from.")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="Where to compute. auto: CUDA where there is a GPU, else Apple's mps, else the CPU."
    )
    model: ModelConfig = Field(default_factory=ModelConfig, description="The shape of the model.")
    data: DataConfig = Field(default_factory=DataConfig, description="What it is trained on.")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How it is trained.")
    logging: LoggingConfig = Field(default_factory=LoggingConfig, description="What is written down.")
    inspection: InspectionConfig = Field(default_factory=InspectionConfig, description="What is looked at.")
