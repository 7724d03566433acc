"""Accumulating gradients over parts of a batch against the whole batch at once."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.model.test_attention import awakened
from tests.training.small_runs import CONTEXT, SHAPE, TEXT, small_config, small_trainer, steps_of
from transformer.model.transformer import Transformer
from transformer.training.loop import Trainer


class RaggedBatches:
    """Batches of which every row counts another number of targets, some rows none."""

    def __init__(self) -> None:
        self.row = 0

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = [torch.from_numpy(TEXT[i * 8 : i * 8 + 8].astype("int64")) for i in range(self.row, self.row + 8)]
        self.row += 8
        batch = torch.stack(rows)
        targets = batch[:, 1:].clone()
        for row, n_ignored in enumerate((0, 5, 7, 3, 7, 7, 1, 2)):
            targets[row, CONTEXT - n_ignored :] = -100
        return batch[:, :-1], targets

    @property
    def position(self) -> dict[str, int]:
        return {"row": self.row}

    def restore(self, position: dict[str, int]) -> None:
        self.row = position["row"]


def ragged(path: Path, parts: int, optimizer: str = "muon") -> Trainer:
    config = small_config(
        max_steps=4, batch_size=8, gradient_accumulation=parts, optimizer=optimizer, grad_clip=None, learning_rate=1e-3
    )
    trainer = small_trainer(path, config, batches=RaggedBatches())
    trainer.model.load_state_dict(awakened(SHAPE).state_dict())
    return trainer


def gradients_at_each_step(trainer: Trainer) -> tuple[list[float], list[dict[str, Tensor]]]:
    """Losses, and copies of all gradients as the first optimizer finds them."""
    found: list[dict[str, Tensor]] = []
    trainer.optimizers[0].register_step_pre_hook(
        lambda *_: found.append({name: p.grad.clone() for name, p in trainer.model.named_parameters()})
    )
    return [step.loss for step in steps_of(trainer.run())], found


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_the_first_gradient_and_loss_are_those_of_the_mean_over_all_counted_targets(tmp_path: Path, parts: int) -> None:
    inputs, targets = RaggedBatches().next_batch()
    reference: Transformer = awakened(SHAPE)
    counted = targets != -100
    losses = -reference(inputs).log_softmax(dim=-1).gather(2, targets.clamp(min=0)[..., None])[..., 0][counted]
    losses.mean().backward()

    logged, gradients = gradients_at_each_step(ragged(tmp_path, parts))

    assert int(counted.sum()) == 24
    assert logged[0] == pytest.approx(losses.mean().item(), abs=1e-6)
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradients[0][name], parameter.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulated_parts_train_as_the_whole_batch_does(tmp_path: Path, parts: int, optimizer: str) -> None:
    whole, divided = ragged(tmp_path / "whole", 1, optimizer), ragged(tmp_path / "parts", parts, optimizer)
    whole_losses, whole_gradients = gradients_at_each_step(whole)
    losses, gradients = gradients_at_each_step(divided)
    assert losses == pytest.approx(whole_losses, abs=1e-6)
    for first, second in zip(whole_gradients, gradients, strict=True):
        for name in first:
            torch.testing.assert_close(second[name], first[name], atol=1e-6, rtol=1e-4)
    for (name, first), second in zip(whole.model.named_parameters(), divided.model.parameters(), strict=True):
        torch.testing.assert_close(second, first, atol=1e-6, rtol=1e-6, msg=name)


def test_the_logged_loss_is_no_mean_of_means(tmp_path: Path) -> None:
    inputs, targets = RaggedBatches().next_batch()
    logits = awakened(SHAPE)(inputs)
    halves = [F.cross_entropy(logits[part].flatten(0, 1), targets[part].flatten()) for part in (slice(4), slice(4, 8))]
    (first, *_), _ = gradients_at_each_step(ragged(tmp_path, 2))
    assert not math.isclose(first, sum(half.item() for half in halves) / 2, abs_tol=1e-3)


def test_no_more_than_a_part_is_computed_at_once(tmp_path: Path) -> None:
    trainer = ragged(tmp_path, 4)
    rows: list[int] = []
    trainer.model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    events = trainer.run()
    for _ in range(2):
        next(events)
    assert rows == [2] * 4 * 2
