"""`attn train`: wire a configuration, its data and a model together, train, and tell about it."""

import shlex
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import torch

from cli.config import Config
from cli.config_file import to_yaml
from cli.material import Material, gather
from cli.reporter import Reporter
from cli.run_choice import check_changes, check_name, claim_folder, data_key, discard_unbegun, exact_run, newest_run
from cli.signals import stop_on_signals
from cli.terminal import bold, count, duration, say
from transformer.files import Json, copy_file, write_text
from transformer.model.transformer import Transformer
from transformer.randomness import derive_seed
from transformer.run_folder import RunFolder
from transformer.training.checkpoint import Progress
from transformer.training.device import choose_compile, choose_device, choose_precision
from transformer.training.loop import Finished, Reason, Trainer

REASONS: dict[Reason, str] = {
    "max_steps": "all steps done",
    "target_loss": "target_loss reached",
    "patience": "no better loss within patience",
    "interrupted": "interrupted and saved",
}


def train(config: Config, *, name: str, exact_name: bool, resume: bool, runs: Path) -> None:
    """Train to the end, or until a signal: then save, and exit with 128 + the signal.

    The run is called `name`; to resume, it is the newest of `name`, `name-2` …, or with `exact_name` that one.
    """
    check_name(name, runs)
    device = choose_device(config.device)
    precision = choose_precision(config.training.precision, device)
    with ExitStack() as held:
        checkpoint = None
        if resume:
            folder = exact_run(runs, name) if exact_name else newest_run(runs, name)
            held.enter_context(folder.lock())
            checkpoint = folder.newest_valid(say)
            check_changes(checkpoint, config)
        material = gather(config, key=None if checkpoint is None else data_key(checkpoint))
        vocab_size = material.tokenizer.get_vocab_size()
        model = Transformer(config.model, vocab_size, seed=derive_seed(config.seed, "weights")).to(device)
        n_steps = config.training.max_steps - (0 if checkpoint is None else checkpoint.step)
        compiled = choose_compile(config.training.compile, device, n_steps, say=say)
        if checkpoint is None:  # whatever could be refused was accepted: now there may be a folder
            folder = claim_folder(runs, name)
            held.callback(discard_unbegun, folder)
            held.enter_context(folder.lock())
        _introduce(config, material, model, folder, f"{device}, {str(precision).removeprefix('torch.')}", compiled)
        trainer = Trainer(
            model,
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
        write_run_files(folder, config, material)
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


def write_run_files(folder: RunFolder, config: Config, material: Material) -> None:
    """Make the run folder self-contained: configuration, tokenizer, validation ids."""
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
    run = shlex.quote(str(folder.path)) if name.startswith("-") else name  # a name like an option is no argument
    for command in ("generate", "evaluate", "board"):
        say(f"  attn {command} {run}")


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
