"""Small Transformers with attention that can be looked at.

    from transformer import ModelConfig, Transformer, attention_maps, open_run

Names are imported when they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer.inspection.capture import attention_maps as attention_maps
    from transformer.model.config import ModelConfig as ModelConfig
    from transformer.model.transformer import Transformer as Transformer
    from transformer.run_folder import open_run as open_run

_HOMES = {
    "ModelConfig": "transformer.model.config",
    "Transformer": "transformer.model.transformer",
    "attention_maps": "transformer.inspection.capture",
    "open_run": "transformer.run_folder",
}
__all__ = ["ModelConfig", "Transformer", "attention_maps", "open_run"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
