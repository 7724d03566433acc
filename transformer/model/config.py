"""The shape of a model: every `model:` key of a configuration file, with its meaning and its range."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)
"""What every section shares: unknown keys, values of another type and non-finite numbers are errors."""

AttentionKind = Literal["auto", "explicit", "fused"]
PositionName = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]


class ModelConfig(BaseModel):
    """Everything that decides a model's shape except its vocabulary, which comes from the tokenizer."""

    model_config = STRICT

    d_model: int = Field(128, ge=1, description="Width of the residual stream.")
    n_layers: int = Field(4, ge=1, description="Number of blocks (attention and feed-forward).")
    n_heads: int = Field(4, ge=1, description="Number of query heads; must divide d_model.")
    n_kv_heads: int | None = Field(
        None,
        ge=1,
        description="Number of key and value heads (grouped queries); must divide n_heads. null: n_heads.",
    )
    d_ff: int | None = Field(
        None, ge=1, description="Width of the feed-forward layer. null: 4 x d_model (8/3 x d_model for swiglu)."
    )
    context_length: int = Field(64, ge=1, description="Number of tokens that the model sees at once.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Share of activations zeroed while training.")
    position: PositionName = Field("rotary", description="How a token's position enters the model.")
    window: int | None = Field(
        None, ge=1, description="Each token sees this many tokens, its own included. null: the whole past."
    )
    qk_norm: bool = Field(True, description="Normalise queries and keys, which keeps attention logits small.")
    norm: Literal["rmsnorm", "layernorm"] = Field("rmsnorm", description="Normalisation before each layer.")
    feed_forward: Literal["gelu", "relu2", "swiglu"] = Field(
        "relu2", description="Activation of the feed-forward layer (relu2 is ReLU squared)."
    )
    bias: bool = Field(False, description="Add a bias to linear layers and layer norms.")
    tie_embeddings: bool = Field(False, description="Use the token embedding as the output layer too.")
    attention: AttentionKind = Field(
        "auto",
        description="Written-out attention or torch's fused kernel; the result is the same. auto: the faster.",
    )

    @field_validator("n_heads")
    @classmethod
    def _heads_divide_width(cls, n_heads: int, info: ValidationInfo) -> int:
        d_model = info.data.get("d_model")
        if d_model is not None and d_model % n_heads:
            raise ValueError(f"must divide d_model: {d_model} / {n_heads} is not a whole number")
        return n_heads

    @field_validator("n_kv_heads")
    @classmethod
    def _kv_heads_divide_heads(cls, n_kv_heads: int | None, info: ValidationInfo) -> int | None:
        n_heads = info.data.get("n_heads")
        if n_kv_heads is not None and n_heads is not None and n_heads % n_kv_heads:
            raise ValueError(f"must divide n_heads: {n_heads} / {n_kv_heads} is not a whole number")
        return n_kv_heads

    @field_validator("position")
    @classmethod
    def _rotary_needs_pairs(cls, position: PositionName, info: ValidationInfo) -> PositionName:
        d_model, n_heads = info.data.get("d_model"), info.data.get("n_heads")
        if position == "rotary" and d_model is not None and n_heads is not None and d_model // n_heads % 2:
            raise ValueError(f"rotary turns pairs of dimensions, and d_model / n_heads = {d_model // n_heads} is odd")
        return position

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.n_kv_heads or self.n_heads

    @property
    def feed_forward_width(self) -> int:
        """`d_ff`, or the width that gives every feed-forward kind the same number of parameters."""
        if self.d_ff is not None:
            return self.d_ff
        if self.feed_forward == "swiglu":
            return max(8, 8 * self.d_model // 3 // 8 * 8)
        return 4 * self.d_model
