"""The layout of a run folder, and the only file that knows it.

    config.yaml                 resolved configuration
    tokenizer.json              standard `tokenizers` format
    validation.npy              token ids of the validation split (not for tasks, which generate them)
    checkpoints/step_00000500/  model.safetensors · training.safetensors · checkpoint.json
    checkpoints/last.json       which checkpoint is newest; best.json likewise
    metrics.jsonl               one line per logged step and per evaluation
    tensorboard/                event files
    inspection/                 probe.json · scores.jsonl, a line a measurement · maps/step_00000500.bin
    samples.md                  text sampled while training
    attention.html              the page that `attn inspect` wrote last
    .lock                       held by the process that trains the run

Every file but metrics.jsonl, scores.jsonl, samples.md and the events, which grow, is written under a temporary name,
flushed and renamed, so that a kill at any instant leaves only whole files. Nothing is pickled.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from transformer.checkpoint_folder import Checkpoint, load_weights
from transformer.errors import NewerFormatError, UserError
from transformer.files import FORMAT, Json, digest, flush_to_disk, read_json, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from transformer.model.config import ModelConfig
    from transformer.model.transformer import Transformer

Which = Literal["best", "last"] | int

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """An opened run: what a checkpoint holds, ready to use."""

    config: "ModelConfig"
    model: "Transformer"
    tokenizer: "Tokenizer"
    step: int
    folder: "RunFolder"


def open_run(path: str | Path, which: Which = "best", *, device: str = "cpu") -> Run:
    """Open a run folder: its model (in eval mode), configuration and tokenizer.

    `which` is "best" (lowest validation loss), "last", or the step of a checkpoint.
    Raises UserError where the folder, the checkpoint or one of its files is missing, damaged or foreign.
    """
    from transformer.model.transformer import Transformer

    folder = RunFolder(Path(path))
    checkpoint, weights = folder.read_steadily(lambda: _read_weights(folder.checkpoint(which)))
    tokenizer = folder.read_tokenizer()
    if tokenizer.get_vocab_size() != checkpoint.vocab_size:
        raise UserError(
            f"{folder.tokenizer_file}: has {tokenizer.get_vocab_size()} tokens, but the model of "
            f"{checkpoint.path} was trained with {checkpoint.vocab_size}; they belong to different runs"
        )
    config = checkpoint.model_config()
    model = Transformer(config, checkpoint.vocab_size)
    load_weights(model, weights, checkpoint.path / "model.safetensors")
    return Run(config, model.to(device).eval(), tokenizer, checkpoint.step, folder)


def _read_weights(checkpoint: Checkpoint) -> "tuple[Checkpoint, dict[str, Tensor]]":
    return checkpoint, checkpoint.read_tensors("model.safetensors")


@dataclass(frozen=True)
class Pointer:
    """A checkpoint by its step, with its validation loss where it was evaluated."""

    step: int
    loss: float | None


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run, and its checkpoints."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def changed(self) -> float:
        """When the run last wrote something, in seconds since 1970."""
        files = (self.config_file, self.metrics_file, self._pointer_file("last"))
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)

    @property
    def config_file(self) -> Path:
        """Resolved configuration, YAML."""
        return self.path / "config.yaml"

    @property
    def tokenizer_file(self) -> Path:
        """Tokenizer, `tokenizers` JSON."""
        return self.path / "tokenizer.json"

    @property
    def validation_file(self) -> Path:
        """Validation ids, one-dimensional .npy."""
        return self.path / "validation.npy"

    @property
    def metrics_file(self) -> Path:
        """Metrics, one JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:
        """Samples, Markdown."""
        return self.path / "samples.md"

    @property
    def tensorboard_folder(self) -> Path:
        """Event files."""
        return self.path / "tensorboard"

    @property
    def inspection_folder(self) -> Path:
        """What is known of the attention; see `transformer.inspection.record`."""
        return self.path / "inspection"

    @property
    def viewer_file(self) -> Path:
        """The page of `attn inspect`, HTML."""
        return self.path / "attention.html"

    @property
    def checkpoints_folder(self) -> Path:
        """One folder a checkpoint, and the pointers."""
        return self.path / "checkpoints"

    def read_tokenizer(self) -> "Tokenizer":
        """The run's tokenizer; text that looks like a special token stays text."""
        from tokenizers import Tokenizer

        if not self.tokenizer_file.is_file():
            raise UserError(f"{self.path}: no run folder, since it has no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_str(self.tokenizer_file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises a bare Exception for a file that it cannot parse
            raise UserError(f"{self.tokenizer_file}: no tokenizer, or a damaged one: {error}") from error
        tokenizer.encode_special_tokens = True
        return tokenizer

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training this run; the lock ends with the process at the latest.

        Raises UserError where another process holds it.
        """
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.path / ".lock", blocking=False):
                yield
        except Timeout as error:
            raise UserError(f"{self.path}: is being trained by another process; wait for it, or stop it") from error

    def steps(self) -> list[int]:
        """Steps of all checkpoints, ascending."""
        names = (re.fullmatch(r"step_(\d+)", path.name) for path in self.checkpoints_folder.glob("step_*"))
        return sorted(int(match[1]) for match in names if match)

    def checkpoint_path(self, step: int) -> Path:
        """Folder of the checkpoint of a step."""
        return self.checkpoints_folder / f"step_{step:08d}"

    def pointer(self, which: Literal["best", "last"]) -> Pointer | None:
        """What best.json or last.json says, or None before there is one. Raises UserError where it is damaged."""
        path = self._pointer_file(which)
        if not path.exists():
            return None
        record = read_json(path)
        step, loss = record.get("step"), record.get("loss")
        if not isinstance(step, int) or not isinstance(loss, float | None):
            raise UserError(f"{path}: names no step and loss")
        return Pointer(step, loss)

    def checkpoint(self, which: Which) -> Checkpoint:
        """Find a checkpoint. Raises UserError with those that there are where it is missing."""
        steps = self.steps()
        if not steps:
            what = "has no checkpoint yet" if self.path.is_dir() else "no such run"
            raise UserError(f"{self.path}: {what}")
        step = which if isinstance(which, int) else self._pointed_step(which)
        if step not in steps:
            raise UserError(f"{self.path}: no checkpoint of step {step}; there are {', '.join(map(str, steps))}")
        path = self.checkpoint_path(step)
        record = read_json(path / "checkpoint.json")
        if record.get("step") != step or not isinstance(record.get("vocab_size"), int):
            raise UserError(f"{path / 'checkpoint.json'}: not the record of step {step}")
        return Checkpoint(path, record)

    def read_steadily(self, read: Callable[[], T]) -> T:
        """What `read` gives, once more where it failed while a training run replaced the checkpoint that it read."""
        while True:
            before = self._pointer_contents()
            try:
                return read()
            except UserError:
                if before == self._pointer_contents():
                    raise

    def _pointer_contents(self) -> list[bytes]:
        files = (self._pointer_file("best"), self._pointer_file("last"))
        return [file.read_bytes() for file in files if file.is_file()]

    def _pointed_step(self, which: Literal["best", "last"]) -> int:
        pointer = self.pointer(which) or self.pointer("last")
        return self.steps()[-1] if pointer is None else pointer.step

    def _pointer_file(self, which: Literal["best", "last"]) -> Path:
        return self.checkpoints_folder / f"{which}.json"

    def write_checkpoint(self, step: int, record: Json, tensors: "Mapping[str, Mapping[str, Tensor]]") -> None:
        """Write a checkpoint whole: `tensors` maps file names to what they hold. Its folder appears last.

        The weights of a step never change: where the checkpoint exists, only its record is written anew.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        final = self.checkpoint_path(step)
        record = {"format": FORMAT, "step": step, **record}
        if final.exists():
            digests = read_json(final / "checkpoint.json")["digests"]
            write_json(final / "checkpoint.json", {**record, "digests": digests})
            return
        temporary = final.with_name(f".{final.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        if not self.path.is_dir():
            raise UserError(f"{self.path}: was moved or deleted while it was trained; step {step} is not saved")
        temporary.mkdir(parents=True)
        for name, values in tensors.items():
            on_cpu = {key: value.detach().cpu().contiguous() for key, value in values.items()}
            try:
                save_file(on_cpu, temporary / name)
            except SafetensorError as error:  # a full disk, for one
                raise UserError(f"{temporary / name}: cannot be written: {error}") from error
            flush_to_disk(temporary / name)
        digests = {name: digest(temporary / name) for name in tensors}
        write_json(temporary / "checkpoint.json", {**record, "digests": digests})
        temporary.rename(final)
        flush_to_disk(final.parent)

    def point(self, which: Literal["best", "last"], step: int, loss: float | None) -> None:
        """Make `best` or `last` mean the checkpoint of a step."""
        write_json(self._pointer_file(which), {"format": FORMAT, "step": step, "loss": loss})

    def newest_valid(self, say: Callable[[str], None]) -> Checkpoint:
        """The newest checkpoint whose files are whole; broken ones are named through `say`. Raises UserError."""
        for step in reversed(self.steps()):
            path = self.checkpoint_path(step)
            try:
                checkpoint = self.checkpoint(step)
                checkpoint.verify()
                return checkpoint
            except NewerFormatError:
                raise
            except UserError as error:
                aside = path.rename(_free_name(path.with_name(f"{path.name}.broken")))
                say(f"{error}; it is kept as {aside.name}, and an earlier checkpoint is looked for")
        raise UserError(f"{self.path}: has no whole checkpoint to resume from")

    def discard_after(self, step: int) -> None:
        """Delete the checkpoints of later steps, which a run that goes on from `step` will make again.

        The pointers go too: whoever goes on sets them anew.
        """
        for later in self.steps():
            if later > step:
                shutil.rmtree(self.checkpoint_path(later))
        for which in ("best", "last"):
            self._pointer_file(which).unlink(missing_ok=True)

    def prune(self, keep: int) -> None:
        """Delete all checkpoints but the newest `keep` and the best."""
        best = self.pointer("best")
        for step in self.steps()[:-keep]:
            if best is None or step != best.step:
                shutil.rmtree(self.checkpoint_path(step))


def _free_name(path: Path) -> Path:
    """The path, or the first of path2, path3 … that does not exist."""
    paths = (path.with_name(f"{path.name}{number}") for number in chain([""], count(2)))
    return next(path for path in paths if not path.exists())
