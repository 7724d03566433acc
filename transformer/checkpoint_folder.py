"""Reading one checkpoint of a run: its record, and its tensors once their digests are verified."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from transformer.errors import UserError
from transformer.files import Json, digest

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.model.config import ModelConfig
    from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class Checkpoint:
    """One folder of checkpoints/, with what its checkpoint.json says."""

    path: Path
    record: Json = field(repr=False)

    @property
    def step(self) -> int:
        """Updates made."""
        return cast(int, self.record["step"])

    @property
    def vocab_size(self) -> int:
        """Number of tokens that the model knows."""
        return cast(int, self.record["vocab_size"])

    def model_config(self) -> "ModelConfig":
        """The shape of the model."""
        from transformer.model.config import ModelConfig

        try:
            return ModelConfig.model_validate(self.record["model"])
        except (ValueError, KeyError) as error:
            raise UserError(f"{self.path / 'checkpoint.json'}: no valid model configuration: {error}") from error

    def read_tensors(self, name: str) -> "dict[str, Tensor]":
        """The tensors of one file, on the CPU, after checking that the file is the one that was written."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / name
        self._verify_file(path)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from error

    def verify(self) -> None:
        """Check that every file is the one that was written. Raises UserError naming the first that is not."""
        for name in ("model.safetensors", "training.safetensors"):
            self._verify_file(self.path / name)

    def _verify_file(self, path: Path) -> None:
        digests = self.record.get("digests")
        if not isinstance(digests, dict) or path.name not in digests:
            raise UserError(f"{self.path / 'checkpoint.json'}: has no digest of {path.name}")
        try:
            found = digest(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error}") from error
        if found != digests[path.name]:
            raise UserError(f"{path}: damaged, or from another checkpoint: its digest is not the recorded one")


def load_weights(model: "Transformer", tensors: "Mapping[str, Tensor]", source: Path) -> None:
    """Fill a model. Raises UserError naming `source` where tensors are missing, left over or of another shape."""
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        raise UserError(
            f"{source}: does not fit its configuration: {name} is {found.get(name, 'missing')}, "
            f"expected {wanted.get(name, 'no such tensor')} ({len(wrong)} tensors differ)"
        )
    model.load_state_dict(dict(tensors))
