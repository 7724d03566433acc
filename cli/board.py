"""`attn board`: TensorBoard on runs, with every image kept."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.terminal import say
from transformer.errors import UserError
from transformer.run_folder import find_run, list_runs


def board(names: Sequence[str], *, port: int, host: str, runs: Path) -> None:
    """Serve TensorBoard until it is interrupted. Raises UserError where there is no run to show."""
    folders = [find_run(name, runs) for name in names] or list_runs(runs)
    if not folders:
        raise UserError(f"{runs}/ holds no run yet; train one with `attn train CONFIG`")
    if names:
        where = ["--logdir_spec", ",".join(f"{folder.name}:{folder.tensorboard_folder}" for folder in folders)]
    else:
        where = ["--logdir", str(runs)]
    keep_all = ["--samples_per_plugin", "images=0,text=0,scalars=0"]
    command = [sys.executable, "-m", "tensorboard.main", *where, *keep_all, "--port", str(port), "--host", host]
    say(f"TensorBoard on {len(folders)} run(s); Ctrl-C ends it")
    raise SystemExit(subprocess.run(command, check=False).returncode)
