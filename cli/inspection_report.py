"""Looking at attention while a model trains: pictures and numbers for TensorBoard, maps and scores for the record."""

import time
from collections.abc import Callable, Iterable

import numpy as np

from cli.config import Config
from cli.inspection_schedule import KINDS, Kind, Schedule, spread_steps
from cli.terminal import say
from transformer.inspection.capture import attention_maps
from transformer.inspection.event_files import picture_steps
from transformer.inspection.probe import Measurement, Rows, measure_attention, miss_heads
from transformer.inspection.record import Record, StoredProbe
from transformer.inspection.tensorboard import TensorBoardWriter
from transformer.inspection.tensorboard_report import write_maps, write_measurement, write_score_pictures
from transformer.inspection.tensorboard_tags import layers_note
from transformer.model.transformer import Transformer
from transformer.run_folder import RunFolder
from transformer.training.loop import Finished, Step


class InspectionReport:
    """Looks at a model and writes what it sees; neither the weights nor the random numbers of training know of it."""

    def __init__(
        self,
        config: Config,
        stored: StoredProbe,
        model: Transformer,
        folder: RunFolder,
        tensorboard: TensorBoardWriter,
        *,
        first_step: int,
    ) -> None:
        self.model, self.stored, self.tensorboard, self.first_step = model, stored, tensorboard, first_step
        self.record = Record(folder.inspection_folder)
        self.schedule = Schedule(
            planned(config, self.record.map_steps(), picture_steps(folder.tensorboard_folder), first_step=first_step),
            last_step=config.training.max_steps,
        )
        self.probe = stored.probe(device=model.embedding.weight.device)
        self._began = 0.0
        self._missed: Rows | None = None
        self._measured: Measurement | None = None
        note = layers_note(stored.n_layers)
        if note is not None:
            say(note)
        if first_step == 0:
            self._look(0, self.schedule.due(0))

    def on_step(self, event: Step) -> None:
        """Look where it is time to."""
        self.schedule.trained(event.seconds)
        if self.schedule.due(event.step):
            rarer = self.schedule.thin_out(event.step)
            if rarer is not None:
                say(rarer)
            self._look(event.step, self.schedule.due(event.step))

    def on_finish(self, event: Finished) -> None:
        """Look at what came out; a run that was interrupted goes on as if it had not been."""
        if event.step > self.first_step and event.reason != "interrupted":
            self._look(event.step, self.schedule.due_at_end(event.step))

    def _look(self, step: int, kinds: Iterable[Kind]) -> None:
        actions: dict[Kind, Callable[[int], None]] = {
            "knock-outs": self._knock_out,
            "scores": self._measure,
            "score pictures": self._draw_scores,
            "maps": self._keep_maps,
            "pictures": self._draw,
        }
        self._began = time.perf_counter()
        try:
            for kind in kinds:
                started = time.perf_counter()
                actions[kind](step)
                self.schedule.spent(kind, step, time.perf_counter() - started)
        except OSError as error:  # a full disk, or a folder that is gone: what was trained is worth more
            self.schedule = Schedule(dict.fromkeys(KINDS, ()), last_step=self.schedule.last_step)
            say(f"step {step} · attention is looked at no more, since that failed: {error}; training goes on")

    def _knock_out(self, step: int) -> None:
        self._missed = miss_heads(self.model, self.probe)

    def _measure(self, step: int) -> None:
        self._measured = measurement = measure_attention(self.model, self.probe, missed=self._missed)
        self._missed = None
        seconds = time.perf_counter() - self._began  # knock-outs included
        self.record.write_line(measurement.line(step, seconds))
        write_measurement(self.tensorboard, step, measurement, seconds=seconds)

    def _keep_maps(self, step: int) -> None:
        self.record.write_maps(step, self._maps())

    def _draw(self, step: int) -> None:
        """Write one picture a layer."""
        write_maps(self.tensorboard, step, self._maps(), tokens=[token.text for token in self.stored.tokens])
        self.tensorboard.flush()

    def _draw_scores(self, step: int) -> None:
        """Write one picture a score; they were measured just now."""
        assert self._measured is not None
        write_score_pictures(self.tensorboard, step, self._measured, baseline=self.stored.baseline)

    def _maps(self) -> np.ndarray:
        """The sentence's maps, (L, H, T, T)."""
        maps: np.ndarray = attention_maps(self.model, self.probe.sentence[None])[:, 0].cpu().numpy()
        return maps


def is_wanted(config: Config) -> bool:
    """Whether attention is looked at at all."""
    settings = config.inspection
    return settings.images > 0 or settings.maps > 0 or settings.every is not None


def planned(
    config: Config, recorded: Iterable[int], drawn: Iterable[int], *, first_step: int
) -> dict[Kind, Iterable[int]]:
    """The steps of every kind from `first_step` on; with what a run has recorded and drawn before, no more than wanted.

    Scores are measured with every map and every picture, and every so many steps.
    """
    settings, last = config.inspection, config.training.max_steps

    def spread(wanted: int, done: Iterable[int]) -> set[int]:
        before = set(done)
        steps = [step for step in spread_steps(last, wanted) if step not in before and is_ahead(step)]
        return set(steps[-max(1, wanted - len(before)) :])

    def is_ahead(step: int) -> bool:
        return step > first_step or first_step == 0

    maps, pictures = spread(settings.maps, recorded), spread(settings.images, drawn)
    scores = set(maps)
    if settings.every is not None:
        scores |= {step for step in (*range(0, last, settings.every), last) if is_ahead(step)}
    scores |= pictures if scores else set()
    return {
        "knock-outs": scores - {0},  # nothing is lost without heads that write nothing yet
        "scores": scores,
        "score pictures": pictures & scores - {0},
        "maps": maps,
        "pictures": pictures,
    }
