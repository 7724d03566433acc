"""What commands that read a run have in common: RUN, --checkpoint and --device."""

from pathlib import Path
from typing import get_args

from transformer.errors import UserError
from transformer.find_runs import find_run
from transformer.run_folder import Run, Which, open_run
from transformer.training.device import DeviceName, choose_device

LONGEST_STEP = 18
"""Digits of a step; Python refuses to read thousands of them."""


def open_model(run: str | None, checkpoint: str, device: str, runs: Path) -> Run:
    """Open the run that a user means, at the checkpoint that they name. Raises UserError."""
    return open_run(find_run(run, runs).path, parse_checkpoint(checkpoint), device=str(parse_device(device)))


def parse_checkpoint(text: str, *, given: str | None = None) -> Which:
    """`best`, `last` or a step. Raises UserError that repeats what was `given`, --checkpoint if nothing else."""
    if text == "best":
        return "best"
    if text == "last":
        return "last"
    if text.isascii() and text.isdigit() and len(text) <= LONGEST_STEP:
        return int(text)
    raise UserError(f"{given or f'--checkpoint {text}'}: must be best, last or the step of a checkpoint")


def parse_device(text: str) -> str:
    """The device that `--device` asks for. Raises UserError."""
    names = get_args(DeviceName)
    for name in names:
        if text == name:
            return str(choose_device(name))
    raise UserError(f"--device {text}: must be {', '.join(names[:-1])} or {names[-1]}")
