"""Which folder a training run gets: one of its own, or that of the run that it goes on with."""

import shutil
from pathlib import Path

from cli.config import Config
from cli.config_file import differences
from cli.terminal import say
from transformer.checkpoint_folder import Checkpoint
from transformer.errors import UserError
from transformer.find_runs import is_run, list_runs
from transformer.run_folder import RunFolder

FREE_ON_RESUME = ("device", "model.dropout", "model.attention", "training.", "logging.", "inspection.")
"""Keys that may change when a run goes on; all others decide what its weights and data mean."""

FIXED_ON_RESUME = ("training.optimizer", "training.eval_tokens")
"""But these decide what the optimizer's state means, and which losses can be compared."""


def check_name(name: str, runs: Path) -> None:
    """Raises UserError for a name that would not be a visible folder directly in `runs`, or no line of text."""
    if not name or not name.isprintable() or name.startswith(".") or Path(name).name != name:
        raise UserError(f"--name {name!r}: must be a plain name; it becomes a folder in {runs}/")


def claim_folder(runs: Path, name: str) -> RunFolder:
    """Make `runs/name`, or the first of name-2, name-3 … that is not taken, also by a run that starts just now."""
    path, number = runs / name, 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = runs / f"{name}-{number}"
            continue
        if number > 1:
            say(f"{runs / name} exists and is kept; this run is {path}")
        return RunFolder(path)


def discard_unbegun(folder: RunFolder) -> None:
    """Remove a claimed folder that did not become a run, since something stopped it before its first file."""
    if {path.name for path in folder.path.glob("*")} <= {".lock"}:
        shutil.rmtree(folder.path, ignore_errors=True)


def exact_run(runs: Path, name: str) -> RunFolder:
    """The run `name`. Raises UserError where there is none."""
    if not is_run(runs / name):
        raise UserError(f"{runs / name}: there is no run of that name to resume; start it without --resume")
    return RunFolder(runs / name)


def newest_run(runs: Path, name: str) -> RunFolder:
    """The newest run called `name`, or `name` with a number. Raises UserError where there is none."""
    found = [
        folder
        for folder in list_runs(runs)
        if folder.name == name or (folder.name.startswith(f"{name}-") and folder.name[len(name) + 1 :].isdigit())
    ]
    return found[-1] if found else exact_run(runs, name)


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


def data_key(checkpoint: Checkpoint) -> str | None:
    """Key of the encoded corpus that a run was trained on; None for a task."""
    key = checkpoint.record.get("data_key")
    return key if isinstance(key, str) else None
