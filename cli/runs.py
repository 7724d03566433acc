"""`attn runs`: a table of all runs."""

import json
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

from cli.terminal import count, printable, say
from transformer.errors import UserError
from transformer.files import Json
from transformer.find_runs import list_runs
from transformer.run_folder import RunFolder


def runs(root: Path, *, as_json: bool) -> None:
    """Write one line per run to stdout, the newest last; a run that cannot be read is named on stderr."""
    rows = []
    for folder in list_runs(root):
        try:
            rows.append(folder.read_steadily(partial(describe, folder)))
        except UserError as error:
            say(printable(f"{folder.path}: skipped: {error}"))
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif rows:
        sys.stdout.write(_table(rows))
    else:
        say(f"{root}/ holds no run yet; train one with `attn train CONFIG`")


def describe(folder: RunFolder) -> Json:
    """What is known of a run; its numbers are None before its first checkpoint."""
    last, best = folder.pointer("last"), folder.pointer("best")
    parameters = None if last is None else folder.checkpoint("last").record.get("parameters")
    return {
        "name": folder.name,
        "parameters": parameters,
        "step": None if last is None else last.step,
        "best_loss": None if best is None else best.loss,
        "best_step": None if best is None else best.step,
        "when": datetime.fromtimestamp(folder.changed).isoformat(" ", "seconds"),
        "path": str(folder.path),
    }


def _table(rows: list[Json]) -> str:
    header = ["name", "parameters", "step", "best loss", "best step", "when"]
    cells = [header, *([_cell(row[name.replace(" ", "_")]) for name in header] for row in rows)]
    for line, row in zip(cells[1:], rows, strict=True):
        if isinstance(row["parameters"], int):
            line[1] = count(row["parameters"])
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else printable(str(value))
