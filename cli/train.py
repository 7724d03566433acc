"""`attn train`: wire a configuration, its data and a model together, train, and tell about it."""

import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import torch

from cli.config import Config
from cli.config_file import differences, load_config, to_yaml
from cli.material import Material, gather
from cli.reporter import Reporter
from cli.terminal import bold, count, duration, say
from transformer.checkpoint_folder import Checkpoint
from transformer.errors import UserError
from transformer.files import Json, copy_file, write_text
from transformer.model.transformer import Transformer
from transformer.randomness import derive_seed
from transformer.run_folder import RunFolder, list_runs
from transformer.training.checkpoint import Progress
from transformer.training.device import choose_compile, choose_device, choose_precision
from transformer.training.loop import Finished, Reason, Trainer

FREE_ON_RESUME = ("device", "model.dropout", "model.attention", "training.", "logging.", "inspection.")
"""Keys that may change when a run goes on; all others decide what its weights and data mean."""
FIXED_ON_RESUME = ("training.optimizer",)

REASONS: dict[Reason, str] = {
    "max_steps": "all steps done",
    "target_loss": "target_loss reached",
    "patience": "no better loss within patience",
    "interrupted": "interrupted and saved",
}


def train(config_file: Path, *, name: str | None, overrides: Sequence[str], resume: bool, runs: Path) -> None:
    """Train to the end, or until a signal: then save, and exit with 128 + the signal."""
    config = load_config(config_file, overrides)
    device = choose_device(config.device)
    precision = choose_precision(config.training.precision, device)
    wanted = config_file.stem if name is None else name
    folder = newest_run(runs, wanted) if resume else RunFolder(free_path(runs, wanted))
    checkpoint = folder.newest_valid(say) if resume else None
    if checkpoint is not None:
        check_changes(checkpoint, config)
    material = gather(config, key=_data_key(checkpoint))
    model = Transformer(config.model, material.tokenizer.get_vocab_size(), seed=derive_seed(config.seed, "weights"))
    compiled = choose_compile(config.training.compile, device, config.training.max_steps, say=say)
    _introduce(config, material, model, folder, f"{device}, {str(precision).removeprefix('torch.')}", compiled)
    write_run_files(folder, config, material)
    trainer = Trainer(
        model.to(device),
        material.batches,
        material.validation,
        config.training,
        folder=folder,
        record={"config": config.model_dump(), "data_key": material.key, "versions": versions()},
        seed=config.seed,
        precision=precision,
        compiled=compiled,
        sizes=material.sizes,
    )
    if checkpoint is not None:
        trainer.resume(checkpoint)
        say(f"resuming at step {checkpoint.step}")
    _run(trainer, config, material, folder)


def _run(trainer: Trainer, config: Config, material: Material, folder: RunFolder) -> None:
    """Train, report, and exit as a shell expects where a signal ended it."""
    reason: Reason = "max_steps"
    with (
        stop_on_signals() as stop,
        Reporter(config, material, trainer.model, folder, first_step=trainer.progress.step) as reporter,
    ):
        for event in trainer.run(lambda: stop.signal is not None):
            reporter.handle(event)
            if isinstance(event, Finished):
                reason = event.reason
    summarize(trainer.progress, reason, folder)
    if stop.signal is not None and reason == "interrupted":
        raise SystemExit(128 + stop.signal)


@dataclass
class Stop:
    """Which signal asked a run to stop, if one did."""

    signal: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks to stop after the step; the second one ends the process at once."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)
        say("stopping after this step and saving; once more stops at once")

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_path(runs: Path, name: str) -> Path:
    """`runs/name`, or the first of name-2, name-3 … that is not taken. Raises UserError for a name with a path."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise UserError(f"--name {name!r}: must be a plain name; it becomes a folder in {runs}/")
    path, number = runs / name, 2
    while path.exists():
        path, number = runs / f"{name}-{number}", number + 1
    if path.name != name:
        say(f"{runs / name} exists and is kept; this run is {path}")
    return path


def newest_run(runs: Path, name: str) -> RunFolder:
    """The newest run called `name`, or `name` with a number. Raises UserError where there is none."""
    found = [
        folder
        for folder in list_runs(runs)
        if folder.name == name or (folder.name.startswith(f"{name}-") and folder.name[len(name) + 1 :].isdigit())
    ]
    if not found:
        raise UserError(f"{runs / name}: there is no run of that name to resume; start it without --resume")
    return found[-1]


def check_changes(checkpoint: Checkpoint, config: Config) -> None:
    """Tell what has changed since the run began. Raises UserError where that would make another model of it."""
    old = checkpoint.record.get("config")
    if not isinstance(old, dict):
        raise UserError(f"{checkpoint.path / 'checkpoint.json'}: holds no configuration")
    changes = differences(old, config.model_dump())
    refused = [change for change in changes if change[0] in FIXED_ON_RESUME or not change[0].startswith(FREE_ON_RESUME)]
    if refused:
        lines = "\n".join(f"  {key}: {was} -> {now}" for key, was, now in refused)
        raise UserError(f"a run cannot go on as another one; start a new run, or undo these changes:\n{lines}")
    for key, was, now in changes:
        say(f"changed: {key}: {was} -> {now}")


def write_run_files(folder: RunFolder, config: Config, material: Material) -> None:
    """Make the run folder self-contained: configuration, tokenizer, validation ids."""
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.checkpoints_folder.mkdir(exist_ok=True)
    written_with = ", ".join(f"{package} {number}" for package, number in versions().items())
    header = [f"Every key of the run {folder.name}, written with {written_with}"]
    write_text(folder.config_file, to_yaml(config, header))
    write_text(folder.tokenizer_file, material.tokenizer.to_str(pretty=True))
    if material.validation_path is not None and not folder.validation_file.exists():
        copy_file(material.validation_path, folder.validation_file)


def versions() -> Json:
    """Versions of what decides a result."""
    return {package: version(package) for package in ("attn", "torch", "tokenizers")}


def summarize(progress: Progress, reason: Reason, folder: RunFolder) -> None:
    """The last words of a run: what came out, where it is, and what to try next."""
    name = shlex.quote(folder.name)
    say()
    say(bold(f"{folder.name}: {REASONS[reason]} after step {progress.step}"))
    if progress.best_loss is not None:
        say(f"  best validation loss  {progress.best_loss:.4f} at step {progress.best_step}")
    say(f"  time in training      {duration(progress.seconds)}, {count(progress.tokens)} tokens")
    say(f"  run folder            {folder.path}")
    say()
    if reason == "interrupted":
        say(f"Go on with: attn train {shlex.quote(str(folder.config_file))} --name {name} --resume")
        return
    say("Try next:")
    for command in ("generate", "evaluate", "board"):
        say(f"  attn {command} {name}")


def _introduce(
    config: Config, material: Material, model: Transformer, folder: RunFolder, where: str, compiled: bool
) -> None:
    shape, threads = config.model, torch.get_num_threads()
    say(bold(f"training {folder.name}"))
    say(f"  data   {material.description}")
    say(
        f"  model  {count(model.n_parameters)} parameters: {shape.n_layers} layers, {shape.n_heads} heads, "
        f"d_model {shape.d_model}, context {shape.context_length}, {shape.position} positions"
    )
    say(f"  on     {where}{', compiled' if compiled else ''}, {threads} thread{'s' if threads > 1 else ''}")


def _data_key(checkpoint: Checkpoint | None) -> str | None:
    key = None if checkpoint is None else checkpoint.record.get("data_key")
    return key if isinstance(key, str) else None
