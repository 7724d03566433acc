"""Where and in which type a run computes, and whether it is compiled: what was asked for, or a clear refusal."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from transformer.errors import UserError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]

COMPILE_PAYS_AFTER = 2000
"""Steps after which torch.compile has repaid its start on CUDA: half a minute to a minute at some 10 % a step."""


def choose_device(name: DeviceName) -> torch.device:
    """The device that `name` asks for. Raises UserError where this machine has none of that kind."""
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        reason = (
            "this torch was built without CUDA; install the CUDA build"
            if torch.version.cuda is None
            else "torch sees no CUDA GPU; check `nvidia-smi` and the driver"
        )
        raise UserError(f"device: cuda was asked for, but {reason}, or use device: auto")
    if name == "mps" and not has_mps:
        raise UserError("device: mps was asked for, but this is no Mac with Apple's GPU; use device: auto")
    return torch.device(name)


def choose_precision(name: Literal["auto", "fp32", "bf16"], device: torch.device) -> torch.dtype:
    """The type of matrix products. Raises UserError where a GPU was asked for bf16 and lacks it."""
    if name == "fp32":
        return torch.float32
    has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "bf16":
        if not has_bf16:
            raise UserError("training.precision: bf16 was asked for, but this GPU has no bf16; use fp32 or auto")
        return torch.bfloat16
    return torch.bfloat16 if device.type == "cuda" and has_bf16 else torch.float32


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Compute matrix products in `dtype` inside this context; weights stay fp32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def choose_compile(
    setting: Literal["auto"] | bool, device: torch.device, n_steps: int, *, say: Callable[[str], None]
) -> bool:
    """Whether to compile a run of `n_steps`.

    `auto` does it where it saves more than it costs; `true` raises UserError where it cannot work.
    """
    if setting is False or (setting == "auto" and (device.type != "cuda" or n_steps < COMPILE_PAYS_AFTER)):
        return False
    fault = _compile_fault(device)
    if fault is None:
        return True
    if setting == "auto":
        say(f"torch.compile does not work here ({fault}); training without it")
        return False
    raise UserError(
        f"training.compile: true was asked for, but torch.compile does not work here ({fault}); "
        "install a C++ compiler, or use compile: auto"
    )


def _compile_fault(device: torch.device) -> str | None:
    """What goes wrong when a trivial function is compiled, in one line, or None."""
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:  # torch's compiler raises many kinds, and each means the same here
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None
