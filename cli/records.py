"""The files of a run that grow while it trains, and how to cut them back to a step."""

import json
import re
from collections.abc import Iterable

from cli.config import Config
from transformer.files import write_text
from transformer.inference.evaluation import Evaluation
from transformer.inspection.event_files import discard_after
from transformer.inspection.record import Record
from transformer.run_folder import RunFolder

SECTION = re.compile(r"^## Step (\d+)\n", re.MULTILINE)


def forget_after(folder: RunFolder, step: int) -> None:
    """Drop the metrics, samples, events, maps and scores of later steps."""
    if folder.metrics_file.exists():
        lines = folder.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        write_text(folder.metrics_file, "".join(_lines_until(lines, step)))
    if folder.samples_file.exists():
        text = folder.samples_file.read_bytes().decode("utf-8", "replace")  # a kill may have cut the last sample short
        later = (match.start() for match in SECTION.finditer(text) if int(match[1]) > step)
        write_text(folder.samples_file, text[: next(later, len(text))])
    if folder.tensorboard_folder.exists():
        discard_after(folder.tensorboard_folder, step)
    Record(folder.inspection_folder).discard_after(step)


def _lines_until(lines: list[str], step: int) -> Iterable[str]:
    for line in lines:
        try:
            is_kept = json.loads(line)["step"] <= step
        except (ValueError, KeyError, TypeError):  # a kill or a power cut left no whole record
            continue
        if is_kept and line.endswith("\n"):
            yield line


def sample_section(step: int, text: str) -> str:
    """A sample as Markdown: indented by four spaces, so that nothing in it is read as a heading."""
    indented = "\n".join("    " + line for line in text.split("\n"))
    return f"## Step {step}\n\n{indented}\n\n"


def evaluation_values(result: Evaluation) -> dict[str, float]:
    """An evaluation as TensorBoard scalars."""
    values = {
        "loss/validation": result.loss,
        "validation/bits_per_byte": result.bits_per_byte,
        "validation/accuracy": result.accuracy,
    }
    return {tag: value for tag, value in values.items() if value is not None}


def hyperparameters(config: Config) -> dict[str, bool | int | float | str | None]:
    """The settings that TensorBoard compares runs by."""
    values = config.model_dump()
    chosen = {
        f"{section}.{key}": value for section in ("model", "data", "training") for key, value in values[section].items()
    }
    return {"seed": config.seed} | {
        key: value if isinstance(value, bool | int | float | str | None) else ", ".join(value)
        for key, value in chosen.items()
    }
