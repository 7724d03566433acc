from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.training.small_runs import SHAPE, small_config, small_trainer, steps_of, weights
from transformer import open_run
from transformer.errors import UserError
from transformer.training.device import (
    COMPILE_PAYS_AFTER,
    autocast,
    choose_compile,
    choose_device,
    choose_precision,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def failing_compiler(message: str) -> Callable[..., object]:
    def compile_nothing(function: object) -> object:
        raise RuntimeError(message)

    return compile_nothing


@pytest.mark.usefixtures("no_gpu")
def test_auto_takes_the_cpu_where_there_is_no_gpu() -> None:
    assert choose_device("auto") == choose_device("cpu") == CPU


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps")])
def test_auto_takes_the_gpu_that_there_is(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == expected
    assert choose_device("cpu") == CPU


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("built_with", "hint"), [(None, "install the CUDA build"), ("12.8", "check `nvidia-smi`")])
def test_asking_for_cuda_where_there_is_none_is_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, built_with: str | None, hint: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_with)
    with pytest.raises(UserError, match=f"device: cuda was asked for, but .*{hint}.*use device: auto"):
        choose_device("cuda")


@pytest.mark.usefixtures("no_gpu")
def test_asking_for_mps_where_there_is_none_is_an_error() -> None:
    with pytest.raises(UserError, match="device: mps was asked for"):
        choose_device("mps")


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_precision_is_bf16_only_on_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch, has_bf16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    assert choose_precision("auto", CPU) == choose_precision("fp32", CUDA) == torch.float32
    assert choose_precision("bf16", CPU) == torch.bfloat16
    assert choose_precision("auto", CUDA) == (torch.bfloat16 if has_bf16 else torch.float32)
    if has_bf16:
        assert choose_precision("bf16", CUDA) == torch.bfloat16
    else:
        with pytest.raises(UserError, match="this GPU has no bf16"):
            choose_precision("bf16", CUDA)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_computed_in_the_chosen_precision(dtype: torch.dtype) -> None:
    with autocast(CPU, dtype):
        assert (torch.ones(2, 3) @ torch.ones(3, 5)).dtype == dtype


def test_nothing_is_compiled_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", failing_compiler("must not be called"))
    for setting, device, steps in (
        (False, CUDA, 10**6),
        ("auto", CPU, 10**6),
        ("auto", CUDA, COMPILE_PAYS_AFTER - 1),
    ):
        assert choose_compile(setting, device, steps, say=pytest.fail) is False


@pytest.mark.parametrize("message", ["no working compiler\nand much more", ""])
def test_a_compiler_that_fails_is_one_line_under_auto_and_an_error_under_true(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(torch, "compile", failing_compiler(message))
    told: list[str] = []
    assert choose_compile("auto", CUDA, 10**6, say=told.append) is False
    assert len(told) == 1
    assert told[0].startswith("torch.compile does not work here (")
    assert "\n" not in told[0]
    assert ("no working compiler" if message else "RuntimeError") in told[0]
    with pytest.raises(UserError, match=r"training\.compile: true was asked for, but .*install a C"):
        choose_compile(True, CPU, 1, say=pytest.fail)


def test_a_compiler_that_works_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert choose_compile(True, CPU, 1, say=pytest.fail) is True


def test_a_compiled_model_trains_and_its_checkpoints_do_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: real(model, backend="eager"))
    trainer = small_trainer(tmp_path / "compiled", small_config(max_steps=3), compiled=True)
    compiled = steps_of(trainer.run())
    plain = small_trainer(tmp_path / "plain", small_config(max_steps=3))
    assert trainer.forward is not trainer.model
    assert [step.loss for step in compiled] == pytest.approx([step.loss for step in steps_of(plain.run())], abs=1e-5)
    files = ("model.safetensors", "training.safetensors")
    for file in files:
        names = trainer.folder.checkpoint("last").read_tensors(file).keys()
        assert names == plain.folder.checkpoint("last").read_tensors(file).keys()
        assert not any("_orig_mod" in name or "module." in name for name in names)
    assert open_run(tmp_path / "compiled").config == SHAPE


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_the_real_compiler_trains_the_same_weights(tmp_path: Path) -> None:
    assert choose_compile(True, CPU, 1, say=pytest.fail)
    compiled = small_trainer(tmp_path / "compiled", small_config(max_steps=5), compiled=True)
    plain = small_trainer(tmp_path / "plain", small_config(max_steps=5))
    list(compiled.run())
    list(plain.run())
    for name, value in weights(compiled).items():
        torch.testing.assert_close(value, weights(plain)[name], atol=1e-4, rtol=1e-4)
