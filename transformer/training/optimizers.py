"""Optimizers: AdamW for everything, or Muon for hidden matrices and AdamW for the rest.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) moves a matrix along the nearest orthogonal matrix to
its momentum, so that every direction learns at the same speed.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from transformer.model.transformer import Transformer
from transformer.training.config import TrainingConfig

MUON_RATE_RATIO = 5.0
"""Muon's rate over AdamW's, where the configuration leaves it open."""

MOMENTUM = 0.9
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic a·x + b·x³ + c·x⁵, which drives singular values to about 1 (Jordan et al. 2024)."""


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: W <- (1 - η λ) W - η √max(1, rows/columns) · orthogonal(momentum)."""

    def __init__(self, parameters: Iterable[Tensor], *, learning_rate: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": learning_rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update. Matrices of one shape are orthogonalised together, in one batch."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                directions = orthogonalize(torch.stack([self._momentum(parameter) for parameter in parameters]))
                rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(directions.to(parameters[0].dtype)), alpha=-rate)

    def _momentum(self, parameter: Tensor) -> Tensor:
        """Average of the gradients so far, looking one step ahead (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"]
        momentum.lerp_(parameter.grad, 1.0 - MOMENTUM)
        direction: Tensor = torch.lerp(parameter.grad, momentum, MOMENTUM)
        return direction


def orthogonalize(matrices: Tensor) -> Tensor:
    """Bring every singular value close to 1: (N, R, C) -> (N, R, C), by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


def build_optimizers(model: Transformer, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """The optimizers of a run, AdamW first; each parameter belongs to one of them. Matrices decay, vectors do not."""
    hidden = {id(p) for p in model.blocks.parameters() if p.dim() == 2} if config.optimizer == "muon" else set()
    others = [p for p in model.parameters() if id(p) not in hidden]
    adamw = torch.optim.AdamW(
        [
            {"params": [p for p in others if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        fused=True,
    )
    if not hidden:
        return [adamw]
    muon = Muon(
        [p for p in model.parameters() if id(p) in hidden],
        learning_rate=muon_rate(config),
        weight_decay=config.weight_decay,
    )
    return [adamw, muon]


def muon_rate(config: TrainingConfig) -> float:
    """Muon's peak rate."""
    return config.muon_learning_rate or MUON_RATE_RATIO * config.learning_rate


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Give every group of parameters its peak rate times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = optimizer.defaults["lr"] * factor


def optimizer_tensors(model: Transformer, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Everything that the optimizers remember, as `<parameter>/<quantity>`."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in model.named_parameters()
        for optimizer in optimizers
        if parameter in optimizer.state
        for quantity, value in optimizer.state[parameter].items()
    }


def restore_optimizers(model: Transformer, optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """Undo `optimizer_tensors`; each tensor goes to the optimizer that owns its parameter."""
    parameters = dict(model.named_parameters())
    owners = {id(p): optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for key, value in tensors.items():
        name, _, quantity = key.rpartition("/")
        parameter = parameters[name]
        owners[id(parameter)].state[parameter][quantity] = value.to(parameter.device)
