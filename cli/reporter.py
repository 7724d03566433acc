"""What a training run tells while it goes: metrics.jsonl, TensorBoard, samples, and the terminal."""

import json
from types import TracebackType
from typing import Self

from tqdm import tqdm

from cli.config import Config
from cli.inspection_report import InspectionReport, is_wanted
from cli.material import Material
from cli.probe import fixed_probe
from cli.records import evaluation_values, forget_after, hyperparameters, sample_section
from cli.terminal import bold, count, dim, duration, is_terminal, printable, say
from transformer.inference.evaluation import Evaluation
from transformer.inference.sampling import Sampling
from transformer.inference.text import TextGeneration
from transformer.inspection.record import Record, StoredProbe
from transformer.inspection.tensorboard import TensorBoardWriter
from transformer.inspection.tensorboard_report import write_layout
from transformer.model.transformer import Transformer
from transformer.randomness import derive_seed
from transformer.run_folder import RunFolder
from transformer.training.loop import Evaluated, Event, Step

SAMPLE_TEMPERATURE = 0.8
SHOWN_SAMPLE = 240
"""Characters of a sample that the terminal shows."""


class Reporter:
    """Consumes the events of a run. Closing it ends the bar and the event file."""

    def __init__(
        self, config: Config, material: Material, model: Transformer, folder: RunFolder, *, first_step: int
    ) -> None:
        """What a folder holds of steps after `first_step` is dropped: a resumed run makes those steps again."""
        self.config, self.material, self.model, self.folder = config, material, model, folder
        self.first_step = first_step
        forget_after(folder, first_step if first_step > 0 else -1)  # at step 0 all is written anew
        stored = self._fixed_probe() if is_wanted(config) else None
        self.metrics = folder.metrics_file.open("a", encoding="utf-8")
        self.tensorboard = TensorBoardWriter(folder.tensorboard_folder, say=say)
        self.bar = tqdm(
            total=config.training.max_steps,
            initial=first_step,
            disable=not is_terminal(),
            dynamic_ncols=True,
            unit="step",
            bar_format="{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} · {remaining} left{desc}",
        )
        self._tokens, self._seconds = 0, 0.0
        if first_step == 0:
            self.tensorboard.hyperparameters(hyperparameters(config), ["loss/validation", "loss/train"])
            write_layout(self.tensorboard)
        self.inspection = (
            None
            if stored is None
            else InspectionReport(config, stored, model, folder, self.tensorboard, first_step=first_step)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.close()
        self.metrics.close()
        self.tensorboard.close()

    def _fixed_probe(self) -> StoredProbe:
        record = Record(self.folder.inspection_folder)
        return fixed_probe(record, self.material.probe, self.material.tokenizer, self.model)

    def handle(self, event: Event) -> None:
        """Tell everyone whom an event concerns."""
        if isinstance(event, Step):
            self._on_step(event)
        elif isinstance(event, Evaluated):
            self._on_evaluation(event)
        elif self.inspection is not None:
            self.inspection.on_finish(event)

    def _on_step(self, event: Step) -> None:
        self._tokens += event.tokens
        self._seconds += event.seconds
        if event.step % self.config.logging.log_every == 0 or event.step in (1, self.config.training.max_steps):
            self._log_step(event)
        self.bar.update()
        sample_every = self.config.logging.sample_every
        if sample_every is not None and event.step % sample_every == 0:
            self._sample(event.step)
        if self.inspection is not None:
            self.inspection.on_step(event)

    def _log_step(self, event: Step) -> None:
        speed = self._tokens / self._seconds
        self._tokens, self._seconds = 0, 0.0
        values = {
            "loss/train": event.loss,
            "optimizer/learning_rate": event.learning_rate,
            "optimizer/gradient_norm": event.gradient_norm,
            "speed/tokens_per_second": speed,
        }
        self._record(event.step, values)
        numbers = f"loss {event.loss:.3f} · rate {event.learning_rate:.1e} · {count(speed)} tokens/s"
        self.bar.set_description_str(f" · {numbers}", refresh=False)
        if self.bar.disable:
            say(
                f"step {event.step}/{self.config.training.max_steps} · {numbers} · {self._time_left(event, speed)} left"
            )

    def _time_left(self, event: Step, speed: float) -> str:
        return duration((self.config.training.max_steps - event.step) * event.tokens / speed)

    def _on_evaluation(self, event: Evaluated) -> None:
        self._record(event.step, evaluation_values(event.result), important=True)
        mark = f" · {bold('best so far')}" if event.is_best else ""
        say(f"step {event.step} · validation {describe(event.result)}{mark}")
        if self.config.logging.sample_every is None:
            self._sample(event.step)

    def _record(self, step: int, values: dict[str, float], *, important: bool = False) -> None:
        self.metrics.write(json.dumps({"step": step, **values}) + "\n")
        self.metrics.flush()
        self.tensorboard.scalars(step, values, important=important)

    def _sample(self, step: int) -> None:
        """Write a text of the model into samples.md and TensorBoard, and its beginning onto the terminal."""
        logging = self.config.logging
        if not logging.sample_tokens:
            return
        seed = derive_seed(self.config.seed, "sample", step)
        sampling = Sampling(temperature=SAMPLE_TEMPERATURE)
        prompts = [self.material.sample_ids]
        writing = TextGeneration(self.model, self.material.tokenizer, prompts, seeds=[seed], sampling=sampling)
        text = logging.sample_prompt + "".join(piece for _, piece in writing.pieces(logging.sample_tokens))
        with self.folder.samples_file.open("a", encoding="utf-8", newline="") as file:
            file.write(sample_section(step, text))
        self.tensorboard.text("sample", step, text)
        shown = text[:SHOWN_SAMPLE] + (" …" if len(text) > SHOWN_SAMPLE else "")
        say(dim("\n".join("  │ " + line for line in printable(shown).strip().splitlines())))


def describe(result: Evaluation) -> str:
    """An evaluation in words."""
    parts = [f"loss {result.loss:.4f}", f"perplexity {result.perplexity:.4g}"]
    if result.bits_per_byte is not None:
        parts.append(f"{result.bits_per_byte:.3f} bits per byte")
    if result.accuracy is not None:
        parts.append(f"accuracy {result.accuracy:.3f}")
    return " · ".join(parts)
