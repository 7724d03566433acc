import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.config import TrainingConfig
from transformer.training.optimizers import Muon, build_optimizers, muon_rate, orthogonalize

SHAPES = [(5, 11), (11, 5), (7, 7), (7, 7), (3, 1)]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def muon_in_numpy(n_steps: int, *, rate: float, decay: float, momentum: float) -> list[np.ndarray]:
    """Muon written out in double precision, one matrix at a time, from zero matrices plus one."""
    weights = [np.ones(shape) for shape in SHAPES]
    buffers = [np.zeros(shape) for shape in SHAPES]
    for step in range(n_steps):
        for index, gradient in enumerate(g.double().numpy() for g in gradients(step)):
            buffers[index] = momentum * buffers[index] + (1 - momentum) * gradient
            x = momentum * buffers[index] + (1 - momentum) * gradient
            x = x / (np.linalg.norm(x) + 1e-7)
            for _ in range(5):
                x = 3.4445 * x - 4.7750 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x
            rows, columns = SHAPES[index]
            weights[index] = (1 - rate * decay) * weights[index] - rate * max(1, rows / columns) ** 0.5 * x
    return weights


def stepped(optimizer_of: object, n_steps: int) -> list[Tensor]:
    parameters = [nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    optimizer = optimizer_of(parameters)
    for step in range(n_steps):
        for parameter, gradient in zip(parameters, gradients(step), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def test_muon_equals_its_formula_in_double_precision() -> None:
    ours = stepped(lambda p: Muon(p, learning_rate=0.03, weight_decay=0.2), 7)
    expected = muon_in_numpy(7, rate=0.03, decay=0.2, momentum=0.9)
    for got, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, torch.from_numpy(wanted).float(), atol=1e-4, rtol=1e-4)


def test_muon_equals_torchs_within_the_half_precision_of_torchs_iteration() -> None:
    ours = stepped(lambda p: Muon(p, learning_rate=0.03, weight_decay=0.2), 7)
    theirs = stepped(lambda p: torch.optim.Muon(p, lr=0.03, weight_decay=0.2, momentum=0.9, nesterov=True), 7)
    for got, wanted in zip(ours, theirs, strict=True):
        moved = (wanted - 1.0).norm()
        assert (got - wanted).norm() < 0.01 * moved


@pytest.mark.parametrize("shape", [(11, 5), (5, 11), (13, 13), (1, 7), (7, 1)])
def test_orthogonalizing_brings_singular_values_near_one_and_keeps_the_singular_vectors(shape: tuple[int, int]) -> None:
    random = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    left, _, right = torch.linalg.svd(random, full_matrices=False)
    matrix = left @ torch.linspace(1.0, 0.1, min(shape)).diag() @ right
    result = orthogonalize(matrix[None])[0]
    between = left.T @ result @ right.T  # diagonal where the singular vectors are the same
    assert ((between.diagonal() > 0.6) & (between.diagonal() < 1.3)).all()
    torch.testing.assert_close(between, between.diagonal().diag(), atol=1e-4, rtol=0)


def test_a_batch_of_matrices_is_orthogonalized_one_by_one() -> None:
    matrices = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(2)) * torch.tensor([1e-4, 1, 1e4]).view(
        3, 1, 1
    )
    expected = torch.cat([orthogonalize(matrix[None]) for matrix in matrices])
    torch.testing.assert_close(orthogonalize(matrices), expected, atol=1e-6, rtol=1e-5)


def test_a_gradient_of_zero_moves_nothing() -> None:
    assert (orthogonalize(torch.zeros(1, 3, 5)) == 0).all()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_parameter_has_exactly_one_optimizer(optimizer: str, tied: bool) -> None:
    model = model_with_everything(tied=tied)
    built = build_optimizers(model, TrainingConfig(optimizer=optimizer))
    owned = [id(p) for each in built for group in each.param_groups for p in group["params"]]
    assert sorted(owned) == sorted(id(p) for p in model.parameters())


def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    model = model_with_everything()
    names = {id(p): name for name, p in model.named_parameters()}
    adamw, muon = build_optimizers(model, TrainingConfig(optimizer="muon"))
    by_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    expected = {name for name in names.values() if name.startswith("blocks.") and model.get_parameter(name).dim() == 2}
    assert by_muon == expected
    assert len(by_muon) == 2 * 7  # query, key, value, output; up, gate, down
    assert isinstance(adamw, torch.optim.AdamW)
    assert len(build_optimizers(model, TrainingConfig(optimizer="adamw"))) == 1


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_matrices_decay_and_vectors_do_not(optimizer: str) -> None:
    model = model_with_everything()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    config = TrainingConfig(optimizer=optimizer, learning_rate=0.01, weight_decay=0.3)
    for each in build_optimizers(model, config):
        each.step()
    for name, parameter in model.named_parameters():
        rate = 0.05 if optimizer == "muon" and name.startswith("blocks.") else 0.01
        expected = 1 - rate * 0.3 if parameter.dim() == 2 else 1.0
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, expected), atol=1e-7, rtol=0)


def test_muons_rate_is_five_times_adamws_unless_it_is_given() -> None:
    assert muon_rate(TrainingConfig(optimizer="muon", learning_rate=0.003)) == pytest.approx(0.015)
    assert muon_rate(TrainingConfig(optimizer="muon", muon_learning_rate=0.2)) == 0.2


def model_with_everything(*, tied: bool = False) -> Transformer:
    config = ModelConfig(
        d_model=12,
        n_heads=2,
        n_layers=2,
        context_length=5,
        position="learned",
        bias=True,
        norm="layernorm",
        feed_forward="swiglu",
        tie_embeddings=tied,
    )
    return Transformer(config, 13)
