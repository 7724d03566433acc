"""The training loop: a generator that yields plain facts and knows no console, logger or corpus."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.checkpoint_folder import Checkpoint
from transformer.errors import DivergedError
from transformer.files import Json
from transformer.inference.evaluation import IGNORED, Evaluation, EvaluationBatch, TextSizes, evaluate
from transformer.model.transformer import Transformer, eval_mode
from transformer.randomness import derive_seed
from transformer.run_folder import RunFolder
from transformer.training.checkpoint import Progress, point, restore, save
from transformer.training.config import TrainingConfig
from transformer.training.device import autocast
from transformer.training.optimizers import build_optimizers, set_rates
from transformer.training.schedule import rate_factor

Reason = Literal["max_steps", "target_loss", "patience", "interrupted"]


class Batches(Protocol):
    """Where training batches come from, and a position in them that can be saved."""

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets, (B, T) int64 each; targets of IGNORED do not count."""

    @property
    def position(self) -> dict[str, int]:
        """Where the next batch begins."""

    def restore(self, position: dict[str, int]) -> None:
        """Go to a position."""


@dataclass(frozen=True)
class Step:
    """One update: `loss` is the mean over all its tokens, in nats; the norm is that before clipping."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Evaluated:
    """The validation loss after a step."""

    step: int
    result: Evaluation
    is_best: bool


@dataclass(frozen=True)
class Finished:
    """Training is over."""

    step: int
    reason: Reason


Event = Step | Evaluated | Finished


class Trainer:
    """A model with everything that trains it."""

    def __init__(
        self,
        model: Transformer,
        batches: Batches,
        validation: Callable[[], Iterable[EvaluationBatch]],
        config: TrainingConfig,
        *,
        folder: RunFolder,
        record: Json,
        seed: int,
        precision: torch.dtype,
        compiled: bool,
        sizes: TextSizes | None = None,
    ) -> None:
        """`validation` gives the windows of an evaluation; `record` is kept in every checkpoint."""
        self.model, self.batches, self.validation, self.config = model, batches, validation, config
        self.folder, self.record, self.seed, self.precision, self.sizes = folder, record, seed, precision, sizes
        self.device = model.embedding.weight.device
        self.forward = torch.compile(model) if compiled else model
        self.optimizers = build_optimizers(model, config)
        self.progress = Progress()
        self._saved: Progress | None = None

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of this run, exactly; later ones are deleted. Raises UserError where it does not fit.

        Where the best checkpoint is gone, the next evaluation is the best again.
        """
        self.progress = restore(checkpoint, self.model, self.optimizers, self.batches.restore)
        self.folder.discard_after(checkpoint.step)
        if self.progress.best_step not in self.folder.steps():
            self.progress.best_loss = self.progress.best_step = None
        point(self.folder, self.progress)
        self._saved = replace(self.progress)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Train until max_steps, the target, the end of patience, or until `should_stop` says so after a step.

        Raises DivergedError where a loss or gradient is not finite; the weights are then those of the step before.
        """
        reason: Reason | None = None
        while reason is None:
            if should_stop():
                reason = "interrupted"
                break
            if self._evaluation_due():
                yield self._evaluate()
            reason = self._reason_to_stop()
            if self._save_due():
                self._save()
            if reason is None:
                yield self._step()
        self._save()
        yield Finished(self.progress.step, reason)

    def _step(self) -> Step:
        """One update on one batch, computed in `gradient_accumulation` parts."""
        started = time.perf_counter()
        step = self.progress.step
        inputs, targets = self.batches.next_batch()
        n_tokens = int((targets != IGNORED).sum())
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        factor = rate_factor(step, self.config)
        set_rates(self.optimizers, factor)
        if self.model.config.dropout:
            torch.manual_seed(derive_seed(self.seed, "dropout", step))
        mean_loss = self._accumulate(inputs, targets, n_tokens)
        total_norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        loss, norm = torch.stack([mean_loss, total_norm]).tolist()  # together: a GPU is waited for once
        rate = factor * self.config.learning_rate
        if not math.isfinite(loss) or not math.isfinite(norm):
            self._raise_diverged(inputs, loss, rate, norm)
        if self.config.grad_clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.grad_clip, total_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
        self.progress.step += 1
        self.progress.tokens += n_tokens
        self.progress.seconds += seconds
        return Step(self.progress.step, loss, rate, norm, n_tokens, seconds)

    def _accumulate(self, inputs: Tensor, targets: Tensor, n_tokens: int) -> Tensor:
        """Gradient of the mean loss over the `n_tokens` counted targets of a step; returns that loss."""
        total = torch.zeros((), device=self.device)
        self.model.train()
        parts = self.config.gradient_accumulation
        for part, part_targets in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            with autocast(self.device, self.precision):
                logits = self.forward(part)
            loss = F.cross_entropy(
                logits.float().flatten(0, 1), part_targets.flatten(), ignore_index=IGNORED, reduction="sum"
            )
            torch.autograd.backward(loss / n_tokens)
            total += loss.detach()
        return total / n_tokens

    def _evaluate(self) -> Evaluated:
        """Measure the validation loss; this draws no random numbers."""
        with autocast(self.device, self.precision):
            result = evaluate(self.model, self.validation(), sizes=self.sizes)
        progress = self.progress
        if not math.isfinite(result.loss):
            raise DivergedError(f"step {progress.step}: the validation loss is {result.loss}; lower the learning rate")
        is_best = progress.best_loss is None or result.loss < progress.best_loss
        if is_best:
            progress.best_loss, progress.best_step = result.loss, progress.step
        progress.stale_evaluations = 0 if is_best else progress.stale_evaluations + 1
        progress.last_loss, progress.evaluated_step = result.loss, progress.step
        return Evaluated(progress.step, result, is_best)

    def _evaluation_due(self) -> bool:
        step = self.progress.step
        is_period = step > 0 and step % self.config.eval_every == 0
        return self.progress.evaluated_step != step and (is_period or step >= self.config.max_steps)

    def _save_due(self) -> bool:
        step, period = self.progress.step, self.config.save_every or self.config.eval_every
        return step > 0 and (step % period == 0 or self.progress.best_step == step)

    def _reason_to_stop(self) -> Reason | None:
        progress, target = self.progress, self.config.target_loss
        if target is not None and progress.last_loss is not None and progress.last_loss <= target:
            return "target_loss"
        if self.config.patience is not None and progress.stale_evaluations >= self.config.patience:
            return "patience"
        return "max_steps" if progress.step >= self.config.max_steps else None

    def _save(self) -> None:
        """Write a checkpoint, unless this very state is already written."""
        if self._saved == self.progress:
            return
        save(
            self.folder,
            self.model,
            self.optimizers,
            progress=self.progress,
            position=self.batches.position,
            record=self.record,
            keep=self.config.keep_checkpoints,
        )
        self._saved = replace(self.progress)

    def _raise_diverged(self, inputs: Tensor, loss: float, rate: float, norm: float) -> None:
        """Say where the first number went wrong."""
        parts = inputs.chunk(self.config.gradient_accumulation)
        with autocast(self.device, self.precision):
            places = (first_bad_layer(self.model, part) for part in parts)
            place = next((place for place in places if place is not None), "the loss")
        raise DivergedError(
            f"step {self.progress.step + 1}: the loss is {loss:g} (learning rate {rate:g}, gradient norm {norm:g}); "
            f"the first numbers that are not finite are in {place}. "
            f"Weights and checkpoints are those of step {self.progress.step} or before; lower the learning rate, "
            "or lengthen the warmup"
        )


def first_bad_layer(model: Transformer, ids: Tensor) -> str | None:
    """The first place of a forward pass, else of the backward pass, that holds a number that is not finite.

    Weights are looked at as well: a fused kernel may turn queries that are not numbers into zeros.
    """
    with eval_mode(model):
        positions, placement = model.place(ids)
        x = model.embed(ids, positions)
        if not x.isfinite().all():
            return "the embedding"
        for index, block in enumerate(model.layers()):
            x = block(x, placement=placement)
            if not all(tensor.isfinite().all() for tensor in (x, *block.parameters())):
                return f"block {index}"
        if not model.predict(x).isfinite().all():
            return "the output layer"
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return None
