"""What is looked at while a model trains: every `inspection:` key of a configuration file."""

from pydantic import BaseModel, Field

from transformer.model.config import STRICT

MAX_IMAGES = 10
"""Stock TensorBoard keeps ten images a tag and drops the others at random."""


class InspectionConfig(BaseModel):
    """The probe sentence and how often its attention maps are drawn."""

    model_config = STRICT

    images: int = Field(
        MAX_IMAGES,
        ge=0,
        le=MAX_IMAGES,
        description="Times that attention maps are drawn for TensorBoard, the first and last step among them. "
        "0: never.",
    )
    probe_text: str | None = Field(
        None, min_length=1, description="Sentence whose attention is drawn. null: the start of the validation text."
    )
    probe_tokens: int = Field(32, ge=1, le=256, description="Tokens of the sentence that are drawn, at most.")
