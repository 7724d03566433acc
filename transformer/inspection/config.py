"""What is looked at while a model trains: every `inspection:` key of a configuration file."""

from pydantic import BaseModel, Field

from transformer.model.config import STRICT

MAX_IMAGES = 10
"""Stock TensorBoard keeps ten images a tag and drops the others at random."""


class InspectionConfig(BaseModel):
    """The sentence that is looked at, and how often its attention is drawn and recorded."""

    model_config = STRICT

    images: int = Field(
        MAX_IMAGES,
        ge=0,
        le=MAX_IMAGES,
        description="Times that attention maps are drawn for TensorBoard, the first and last step among them, at most "
        "(see `maps`). 0: never.",
    )
    maps: int = Field(
        20,
        ge=0,
        le=1000,
        description="Times that the attention maps and scores of all heads are recorded in the run's folder "
        "`inspection`, the first and last step among them, at most: where looking at attention would take more than "
        "2 % of the run's time, it is done less often. 0: never.",
    )
    every: int | None = Field(
        None,
        ge=1,
        description="Measure the scores of all heads every so many steps as well. null: with the maps alone.",
    )
    probe_text: str | None = Field(
        None,
        min_length=1,
        description="Sentence whose attention is drawn and recorded, the same for the whole run. "
        "null: the start of the validation text.",
    )
    probe_tokens: int = Field(32, ge=1, le=1024, description="Tokens of the sentence that are used, at most.")
