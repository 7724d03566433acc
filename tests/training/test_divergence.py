from pathlib import Path

import pytest
import torch

from tests.model.test_attention import awakened
from tests.training.small_runs import SHAPE, same, small_config, small_trainer, weights
from transformer.errors import DivergedError
from transformer.training.loop import Step, Trainer

NAN, INFINITY = float("nan"), float("inf")


def diverge(trainer: Trainer, parameter: str, value: float, *, after: int = 3) -> str:
    """Train, poison a parameter after some steps, and return the message that follows."""
    events = trainer.run()
    for event in events:
        if isinstance(event, Step) and event.step == after:
            break
    with torch.no_grad():
        trainer.model.get_parameter(parameter).view(-1)[:] = value
    before = weights(trainer)
    with pytest.raises(DivergedError) as error:
        next(events)
    after_failure = weights(trainer)
    assert all(torch.equal(before[name].nan_to_num(), after_failure[name].nan_to_num()) for name in before)
    return str(error.value)


@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ("embedding.weight", "the embedding"),
        ("blocks.0.attention.query.weight", "block 0"),
        ("blocks.1.feed_forward.down.weight", "block 1"),
        ("output.weight", "the output layer"),
    ],
)
def test_the_first_bad_layer_is_named(tmp_path: Path, parameter: str, place: str, value: float) -> None:
    message = diverge(small_trainer(tmp_path, small_config(warmup_steps=0)), parameter, value)
    assert message.startswith("step 4: the loss is ")
    assert f"not finite are in {place}." in message
    assert "learning rate 0.0034," in message  # 0.004 · 17/20
    assert "gradient norm nan" in message


@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize("parameter", ["blocks.1.feed_forward.up.weight", "final_norm.weight"])
@pytest.mark.parametrize("grad_clip", [None, 1.0])
def test_a_bad_gradient_behind_a_good_loss_is_named_and_changes_nothing(
    tmp_path: Path, parameter: str, value: float, grad_clip: float | None
) -> None:
    trainer = small_trainer(tmp_path, small_config(grad_clip=grad_clip))
    events = trainer.run()
    first = next(events)
    assert isinstance(first, Step)
    before = weights(trainer)
    trainer.model.get_parameter(parameter).register_hook(lambda gradient: torch.full_like(gradient, value))
    with pytest.raises(DivergedError, match=f"the gradient of {parameter}\\.") as error:
        next(events)
    assert same(before, weights(trainer))
    assert f"gradient norm {value}" in str(error.value)
    assert "the loss is 2." in str(error.value)


def test_a_gradient_that_goes_wrong_on_its_way_back_is_named_where_that_began(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config())
    trainer.model.load_state_dict(awakened(SHAPE).state_dict())
    trainer.model.layers()[1].feed_forward_norm.register_full_backward_hook(
        lambda _, gradients, __: tuple(torch.full_like(gradient, NAN) for gradient in gradients)
    )
    with pytest.raises(DivergedError, match=r"the gradient of blocks\.1\.attention\.output\.weight\."):
        next(trainer.run())


def test_the_checkpoints_before_it_stay(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(eval_every=2, keep_checkpoints=2))
    diverge(trainer, "output.weight", NAN, after=5)
    assert trainer.folder.steps()[-1] == 4
    assert trainer.folder.newest_valid(pytest.fail).step == 4


def test_a_validation_loss_that_is_not_finite_stops_too(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, small_config(max_steps=0))
    with torch.no_grad():
        trainer.model.output.weight.fill_(NAN)
    with pytest.raises(DivergedError, match="step 0: the validation loss is nan"):
        list(trainer.run())
    assert trainer.folder.steps() == []
