"""What a run remembers of its attention, `runs/<name>/inspection`: written while it trains, read without torch.

    probe.json               what is measured on, the same for the whole run
    scores.jsonl             a line a measurement; a last line that a kill cut short is ignored
    maps/step_00000500.bin   the sentence's attention maps, all heads; see `transformer.inspection.map_file`

A step's line is written before its maps, so maps always have their scores if those were measured.
"""

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from transformer.errors import NewerFormatError, UserError
from transformer.files import FORMAT, Json, read_json, refuse_special, write_atomically, write_text
from transformer.inspection.map_file import Maps, decode_maps, encode_maps, smallest_pool

if TYPE_CHECKING:
    import torch

    from transformer.inspection.probe import Probe

MAX_RECORDED_WEIGHTS = 2**20
"""Weights of one step, 2 MiB before compression: longer sentences and larger models are pooled to it."""

DIGITS = 6
"""Significant digits of a recorded score."""

MAP_NAME = re.compile(r"step_([0-9]{8,})\.bin")

FROZEN = ConfigDict(frozen=True, allow_inf_nan=False)


class Token(BaseModel):
    """A token as a page shows it: `bytes` in hexadecimal where its text is no whole character."""

    model_config = FROZEN

    text: str
    bytes: str | None
    special: bool


class StoredProbe(BaseModel):
    """probe.json: the token ids that are measured on, and how the sentence reads."""

    model_config = FROZEN

    n_layers: int
    n_heads: int
    sentence: list[int]
    tokens: list[Token]
    groups: list[tuple[int, int, str]]
    """Tokens start … end - 1 that only together make whole characters, and those."""
    repeats: list[list[int]]
    periods: list[int]
    text: list[list[int]]
    baseline: dict[str, float]
    """What a head that attends uniformly scores."""

    @model_validator(mode="after")
    def _fits_together(self) -> "StoredProbe":
        if not self.sentence or len(self.tokens) != len(self.sentence):
            raise ValueError("the sentence and its tokens differ in length")
        if any(not 0 <= start < end <= len(self.tokens) for start, end, _ in self.groups):
            raise ValueError("a group of tokens is not within the sentence")
        if len(self.periods) != len(self.repeats):
            raise ValueError("the rows of repeats and their periods differ in number")
        for rows in (self.repeats, self.text):
            if not all(rows) or len(set(map(len, rows))) != 1:
                raise ValueError("rows are missing, empty, or differ in length")
        if not all(1 <= period <= len(row) for period, row in zip(self.periods, self.repeats, strict=True)):
            raise ValueError("a period is none of its row")
        return self

    def probe(self, *, device: "torch.device | str" = "cpu") -> "Probe":
        """What `measure` takes."""
        import torch

        from transformer.inspection.probe import Probe

        sentence, repeats, text = (
            torch.tensor(ids, dtype=torch.int64, device=device) for ids in (self.sentence, self.repeats, self.text)
        )
        return Probe(sentence, repeats, tuple(self.periods), text)


class Report(BaseModel):
    """A line of scores.jsonl: [layer][head] of every score, None where nothing could be measured."""

    model_config = FROZEN

    format: int = FORMAT
    step: int
    scores: dict[str, list[list[float | None]]]
    interval: dict[str, list[list[tuple[float | None, float | None]]]]
    badges: list[list[list[str]]]
    copy_gap: float | None
    in_context: float | None
    seconds: float
    """How long measuring took."""

    @model_validator(mode="after")
    def _is_of_one_shape(self) -> "Report":
        shapes = [*map(shape, self.scores.values()), *map(shape, self.interval.values())]
        if any(other != shape(self.badges) for other in shapes):
            raise ValueError("scores, intervals and badges are not of the same heads")
        return self


def shape(by_head: Sequence[Sequence[object]]) -> list[int]:
    """The number of heads of every layer."""
    return [len(row) for row in by_head]


@dataclass(frozen=True)
class Record:
    """The folder `inspection` of a run."""

    path: Path

    @property
    def probe_file(self) -> Path:
        """What is measured on."""
        return self.path / "probe.json"

    @property
    def scores_file(self) -> Path:
        """A line a measurement."""
        return self.path / "scores.jsonl"

    def map_file(self, step: int) -> Path:
        """The maps of a step."""
        return self.path / "maps" / f"step_{step:08d}.bin"

    def map_steps(self) -> list[int]:
        """Steps of which there are maps, ascending."""
        names = {path.name for path in (self.path / "maps").glob("step_*.bin")}
        steps = [int(match[1]) for match in map(MAP_NAME.fullmatch, names) if match]
        return sorted(step for step in steps if self.map_file(step).name in names)

    @property
    def changed(self) -> float:
        """When something was last recorded, in seconds since 1970; 0 where nothing was."""
        files = (self.probe_file, self.scores_file, self.path / "maps")
        return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)

    # Writing

    def write_probe(self, probe: StoredProbe) -> None:
        """Fix what is measured on."""
        self.path.mkdir(exist_ok=True)
        write_text(self.probe_file, json.dumps({"format": FORMAT, **probe.model_dump(mode="json")}) + "\n")

    def write_line(self, line: Mapping[str, object]) -> None:
        """Add the line of a measurement, its numbers to DIGITS digits."""
        with self.scores_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(line), allow_nan=False, separators=(",", ":")) + "\n")

    def write_maps(self, step: int, weights: Maps) -> None:
        """Keep the maps of a step: (L, H, T, T), pooled where they are more than MAX_RECORDED_WEIGHTS."""
        maps = weights.reshape(-1, *weights.shape[2:])
        pool = smallest_pool(len(maps), maps.shape[1], max_values=MAX_RECORDED_WEIGHTS)
        content = encode_maps(maps, pool=pool)
        path = self.map_file(step)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, lambda temporary: temporary.write_bytes(content))

    def discard_after(self, step: int) -> None:
        """Drop the lines and maps of later steps, and what a kill left half written."""
        refuse_special(self.scores_file)
        if self.scores_file.exists():
            lines = self.scores_file.read_bytes().splitlines(keepends=True)
            kept = [line for line in lines if line.endswith(b"\n") and _is_until(line, step)]
            if kept != lines:
                write_text(self.scores_file, b"".join(kept).decode("utf-8"))
        for later in self.map_steps():
            if later > step:
                self.map_file(later).unlink()
        for half in (self.path / "maps").glob(".step_*.tmp"):
            half.unlink()

    # Reading

    def read_probe(self) -> StoredProbe:
        """What is measured on. Raises UserError where it is missing, damaged or newer."""
        try:
            return StoredProbe.model_validate(read_json(self.probe_file))
        except NewerFormatError:
            raise
        except ValueError as error:
            fault = f"{self.probe_file}: damaged: {_first(error)}" if isinstance(error, ValidationError) else str(error)
            raise UserError(
                f"{fault}; remove the folder {self.path}: a run that is resumed begins a new record"
            ) from error

    def reports(self, steps: Collection[int] | None = None) -> Iterator[Report]:
        """The lines of scores.jsonl, of some steps or of all. Raises UserError where one is damaged or newer."""
        refuse_special(self.scores_file)
        if not self.scores_file.exists():
            return
        wanted = None if steps is None else {None, *steps}  # a line of no step is damaged, and reading it says so
        with self.scores_file.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):  # it is being written, or a kill cut it short
                    return
                if wanted is None or _step_of(line) in wanted:
                    yield _report(line, f"{self.scores_file}: line {number}")

    def read_maps(self, step: int) -> bytes:
        """The encoded maps of a step, verified. Raises UserError where they are missing, damaged, foreign or newer."""
        return self._read_maps(step, self.read_probe())

    def _read_maps(self, step: int, probe: StoredProbe) -> bytes:
        path = self.map_file(step)
        refuse_special(path)
        try:
            content = path.read_bytes()
            header, _ = decode_maps(content)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error}") from error
        except NewerFormatError as error:
            raise NewerFormatError(f"{path}: {error}") from error
        except ValueError as error:
            raise UserError(f"{path}: {error}; remove the file, and the record does without it") from error
        if (header.n_maps, header.tokens) != (probe.n_layers * probe.n_heads, len(probe.sentence)):
            raise UserError(f"{path}: belongs to another run than {self.probe_file}; remove the file")
        return content

    def view(self, name: str, *, steps: Sequence[int] | None = None, with_maps: bool = True) -> Json:
        """What a page shows of the run `name`: a frame for each of some steps that have maps, else for all that do.

        Maps are in base64, or null where the page fetches them. Raises UserError where a file is damaged, foreign
        or newer.
        """
        probe, steps = self.read_probe(), self.map_steps() if steps is None else steps
        reports = {report.step: report for report in self.reports(set(steps))}
        if any(shape(report.badges) != [probe.n_heads] * probe.n_layers for report in reports.values()):
            raise UserError(f"{self.scores_file}: belongs to another run than {self.probe_file}; remove the file")
        shown = probe.model_dump(mode="json", exclude={"sentence", "repeats", "periods", "text"})
        frames = [
            {
                "step": step,
                "maps": base64.b64encode(self._read_maps(step, probe)).decode("ascii") if with_maps else None,
                "detail": None,
                "report": reports[step].model_dump(mode="json") if step in reports else None,
            }
            for step in steps
        ]
        return {"name": name, **shown, "prompt_length": None, "predictions": None, "frames": frames}


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _step_of(line: bytes) -> int | None:
    """The step of a line, or None where it is no record of one."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def _is_until(line: bytes, step: int) -> bool:
    of_line = _step_of(line)
    return of_line is not None and of_line <= step


def _report(line: bytes, where: str) -> Report:
    try:
        report = Report.model_validate_json(line)
    except ValidationError as error:
        raise UserError(f"{where} is damaged: {_first(error)}; remove that line") from error
    if report.format > FORMAT:
        raise NewerFormatError(
            f"{where} has format {report.format}, and this version reads up to {FORMAT}; upgrade attn"
        )
    return report


def _first(error: ValidationError) -> str:
    """The first fault, and where it is."""
    fault = error.errors()[0]
    return ": ".join([".".join(map(str, fault["loc"])), fault["msg"]] if fault["loc"] else [fault["msg"]])
