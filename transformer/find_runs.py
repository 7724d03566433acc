"""Finding runs below a folder of them."""

from pathlib import Path

from transformer.errors import UserError
from transformer.run_folder import RunFolder


def is_run(path: Path) -> bool:
    """Whether a folder looks like a run."""
    return RunFolder(path).config_file.is_file()


def list_runs(root: Path) -> list[RunFolder]:
    """Every run below `root`, oldest first by its last change."""
    folders = [RunFolder(path) for path in root.iterdir() if is_run(path)] if root.is_dir() else []
    return sorted(folders, key=lambda folder: folder.changed)


def find_run(run: str | None, root: Path) -> RunFolder:
    """The run that a user means: a folder, a name under `root`, or None for the newest. Raises UserError."""
    if run is None:
        runs = list_runs(root)
        if not runs:
            raise UserError(f"{root}/ holds no run yet; train one with `attn train CONFIG`")
        return runs[-1]
    for path in (Path(run), root / run):
        if is_run(path):
            return RunFolder(path)
    names = ", ".join(folder.name for folder in list_runs(root)[-5:]) or "none"
    raise UserError(f"{run}: no run folder of that path, nor a run of that name in {root}/ (newest runs: {names})")
