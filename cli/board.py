"""`attn board`: TensorBoard on runs, with every image kept."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from cli.terminal import say
from transformer.errors import UserError
from transformer.find_runs import find_run, list_runs
from transformer.run_folder import RunFolder

KEPT = 10_000
"""Entries of a tag that TensorBoard keeps; it knows a number for all, 0, but then shows none."""


def board(names: Sequence[str], *, port: int, host: str, runs: Path) -> None:
    """Serve TensorBoard until it is interrupted. Raises UserError where there is no run to show."""
    named = {folder.path.resolve(): folder for folder in (find_run(name, runs) for name in names)}
    folders = list(named.values()) or list_runs(runs)
    if not folders:
        raise UserError(f"{runs}/ holds no run yet; train one with `attn train CONFIG`")
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/" if port else "the address below"
    say(f"TensorBoard on {len(folders)} run{'s' if len(folders) > 1 else ''} at {address}; Ctrl-C ends it")
    if not names:
        raise SystemExit(_serve(runs, port=port, host=host))
    with tempfile.TemporaryDirectory() as chosen:
        link_runs(folders, Path(chosen))
        raise SystemExit(_serve(Path(chosen), port=port, host=host))


def link_runs(folders: Iterable[RunFolder], where: Path) -> None:
    """Link whole runs, so that charts and records have the names that they have below runs/.

    Of two runs with one name, the second is called name-2.
    """
    for folder in folders:
        links = (where / f"{folder.name}{end}" for end in chain([""], (f"-{number}" for number in count(2))))
        next(link for link in links if not link.is_symlink()).symlink_to(folder.path.resolve())


def _serve(logdir: Path, *, port: int, host: str) -> int:
    """Run TensorBoard until it ends; returns its exit code."""
    keep_all = f"images={KEPT},text={KEPT},scalars={KEPT}"
    where = ["--logdir", str(logdir), "--port", str(port), "--host", host]
    command = [sys.executable, "-m", "tensorboard.main", *where, "--samples_per_plugin", keep_all]
    return subprocess.run(command, check=False).returncode
