"""What a run does step by step: updates, evaluations, checkpoints, and when it ends."""

import itertools
from pathlib import Path

import pytest
import torch

from data.batches import evaluation_windows
from tests.training.small_runs import (
    CONTEXT,
    SHAPE,
    VALIDATION,
    evaluations_of,
    facts,
    same,
    small_config,
    small_trainer,
    steps_of,
    weights,
)
from transformer import attention_maps, open_run
from transformer.inference.evaluation import evaluate
from transformer.inference.sampling import Sampling
from transformer.inference.text import TextGeneration
from transformer.model.config import ModelConfig
from transformer.training.loop import Evaluated, Event, Finished, Step

DROPPING = ModelConfig(d_model=16, n_heads=2, n_layers=2, context_length=CONTEXT, dropout=0.2)


def kinds(events: list[Event]) -> str:
    """Events as a word: s a step, E a best evaluation, e another one, F the end."""
    return "".join(
        "s" if isinstance(e, Step) else "F" if isinstance(e, Finished) else "E" if e.is_best else "e" for e in events
    )


def test_a_run_makes_exactly_its_steps_and_evaluates_and_saves_after_the_last(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=7, eval_every=3))
    updates = []
    trainer.optimizers[0].register_step_post_hook(lambda *_: updates.append(1))
    events = list(trainer.run())
    assert kinds(events).lower() == "ssse" + "ssse" + "se" + "f"
    assert [step.step for step in steps_of(events)] == list(range(1, 8))
    assert [each.step for each in evaluations_of(events)] == [3, 6, 7]
    assert events[-1] == Finished(7, "max_steps")
    assert len(updates) == 7
    assert trainer.folder.steps()[-1] == trainer.folder.checkpoint("last").step == 7


def test_a_run_of_one_step_changes_the_weights(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=1))
    before = weights(trainer)
    assert kinds(list(trainer.run())) == "sEF"
    assert not torch.equal(before["output.weight"], weights(trainer)["output.weight"])


def test_the_first_of_many_steps_changes_the_weights(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=1000, warmup_steps=999))
    before = weights(trainer)
    next(trainer.run())
    assert not torch.equal(before["output.weight"], weights(trainer)["output.weight"])


def test_a_run_of_no_steps_evaluates_and_saves_the_model_as_it_is(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=0))
    before = weights(trainer)
    events = list(trainer.run())
    assert kinds(events) == "EF"
    assert events[0].step == 0
    assert evaluations_of(events)[0].result.loss == pytest.approx(torch.tensor(13.0).log().item(), abs=1e-5)
    opened = open_run(tmp_path)
    assert opened.step == 0
    assert same(before, opened.model.state_dict())


def test_steps_tell_their_tokens_and_the_norm_before_clipping(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(grad_clip=0.01, batch_size=6, gradient_accumulation=3))
    norms = []
    trainer.optimizers[0].register_step_pre_hook(
        lambda *_: norms.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).norm().item())
    )
    steps = list(itertools.islice(trainer.run(), 4))
    assert norms == pytest.approx([0.01] * 4, rel=1e-3)
    assert all(step.gradient_norm > 0.05 for step in steps)
    assert [step.tokens for step in steps] == [6 * CONTEXT] * 4
    assert all(step.seconds > 0 for step in steps)


def test_clipping_scales_a_large_gradient_and_leaves_a_small_one(tmp_path: Path) -> None:
    gradients = []
    for clip in (None, 1e3, 0.01):
        trainer = small_trainer(tmp_path / str(clip), small_config(grad_clip=clip))
        trainer.optimizers[0].register_step_pre_hook(
            lambda *_, t=trainer: gradients.append(torch.cat([p.grad.flatten() for p in t.model.parameters()]))
        )
        first = next(trainer.run())
    unclipped, loosely, tightly = gradients
    assert torch.equal(unclipped, loosely)
    torch.testing.assert_close(tightly, unclipped * (0.01 / first.gradient_norm), atol=1e-7, rtol=1e-3)


@pytest.mark.parametrize("eval_every", [2, 100])
def test_looking_more_often_leaves_the_weights_bit_identical(tmp_path: Path, eval_every: int) -> None:
    """Evaluating, attention maps and samples between steps against a run that does none of it; dropout on."""
    plain = small_trainer(tmp_path / "plain", small_config(max_steps=12, eval_every=100), shape=DROPPING)
    losses = [step.loss for step in steps_of(plain.run())]
    watched = small_trainer(tmp_path / "watched", small_config(max_steps=12, eval_every=eval_every), shape=DROPPING)
    tokenizer = watched.folder.read_tokenizer()
    seen = []
    for event in watched.run():
        if isinstance(event, Step):
            seen.append(event.loss)
            attention_maps(watched.model, torch.tensor([[1, 2, 3]]))
            writing = TextGeneration(watched.model, tokenizer, [[3], []], seeds=[1, 2], sampling=Sampling())
            assert list(writing.pieces(9))
    assert seen == losses
    assert same(weights(plain), weights(watched))


def test_best_and_last_are_kept_and_best_scores_its_logged_loss_exactly(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=40, learning_rate=0.01))
    evaluations = evaluations_of(trainer.run())
    best = min(evaluations, key=lambda each: each.result.loss)
    assert best.step < 40
    assert trainer.folder.steps() == [best.step, 40]
    assert trainer.folder.pointer("best").loss == best.result.loss
    for which, logged in (("best", best), ("last", evaluations[-1])):
        opened = open_run(tmp_path, which)
        windows = evaluation_windows(VALIDATION, context_length=CONTEXT, batch_size=3)
        assert opened.step == logged.step
        assert evaluate(opened.model, windows).loss == logged.result.loss


def test_is_best_marks_exactly_the_losses_below_all_before(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=30, eval_every=2, learning_rate=0.002))
    evaluations = evaluations_of(trainer.run())
    losses = [each.result.loss for each in evaluations]
    expected = [all(loss < earlier for earlier in losses[:i]) for i, loss in enumerate(losses)]
    assert [each.is_best for each in evaluations] == expected


def test_the_newest_checkpoints_are_kept_beside_the_best(tmp_path: Path) -> None:
    config = small_config(max_steps=40, learning_rate=0.01, keep_checkpoints=3, save_every=4, eval_every=5)
    trainer = small_trainer(tmp_path, config)
    best = min(evaluations_of(trainer.run()), key=lambda each: each.result.loss).step
    assert best < 30
    assert trainer.folder.steps() == [best, 32, 36, 40]


def test_patience_counts_evaluations_that_are_not_better(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=400, learning_rate=0.01, patience=3))
    events = list(trainer.run())
    evaluations = evaluations_of(events)
    assert events[-1].reason == "patience"
    assert [each.is_best for each in evaluations[-4:]] == [True, False, False, False]
    assert trainer.folder.checkpoint("last").step == evaluations[-1].step


def test_the_target_ends_a_run_at_the_first_evaluation_that_reaches_it(tmp_path: Path) -> None:
    free = evaluations_of(small_trainer(tmp_path / "free", small_config()).run())
    losses = [each.result.loss for each in free]
    target = sorted(losses)[1]
    events = list(small_trainer(tmp_path / "aimed", small_config(target_loss=target)).run())
    reached = next(each.step for each in free if each.result.loss <= target)
    assert events[-1] == Finished(reached, "target_loss")
    assert small_trainer(tmp_path / "aimed", small_config()).folder.checkpoint("last").step == reached


def test_an_interrupted_run_saves_the_step_it_is_at(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config())
    events = list(trainer.run(lambda: trainer.progress.step == 8))
    assert kinds(events) == "sssssEsssF"
    assert events[-1] == Finished(8, "interrupted")
    assert same(weights(trainer), open_run(tmp_path, "last").model.state_dict())
    assert open_run(tmp_path, "last").step == 8


def test_a_run_that_is_interrupted_before_its_first_step_can_go_on(tmp_path: Path) -> None:
    unbroken = list(small_trainer(tmp_path / "unbroken", small_config()).run())
    trainer = small_trainer(tmp_path / "broken", small_config())
    assert list(trainer.run(lambda: True)) == [Finished(0, "interrupted")]
    again = small_trainer(tmp_path / "broken", small_config(), seed=5)
    again.resume(again.folder.newest_valid(pytest.fail))
    assert facts(again.run()) == facts(unbroken)


def test_the_record_of_a_run_travels_in_its_checkpoints(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=2), record={"config": {"seed": 5}})
    list(trainer.run())
    record = trainer.folder.checkpoint("last").record
    assert record["config"] == {"seed": 5}
    assert record["model"] == SHAPE.model_dump()
    assert record["parameters"] == sum(p.numel() for p in trainer.model.parameters())
    assert record["progress"]["tokens"] == 2 * 4 * CONTEXT


def test_bf16_trains_with_weights_in_fp32(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=10), precision=torch.bfloat16)
    events = list(trainer.run())
    full = steps_of(small_trainer(tmp_path / "full", small_config(max_steps=10)).run())
    assert {value.dtype for value in weights(trainer).values()} == {torch.float32}
    for half, whole in zip(steps_of(events), full, strict=True):
        assert half.loss == pytest.approx(whole.loss, abs=0.05)
    assert [step.loss for step in steps_of(events)] != [step.loss for step in full]


def test_evaluations_happen_before_the_step_after_them(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=5, eval_every=2))
    for event in trainer.run():
        if isinstance(event, Evaluated):
            windows = evaluation_windows(VALIDATION, context_length=CONTEXT, batch_size=3)
            assert evaluate(trainer.model, windows).loss == event.result.loss
