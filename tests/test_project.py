"""The repository as a newcomer finds it: README, packages, and the Python door."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import typer

import transformer
from cli.app import app
from tests.readme import ROOT, updated
from transformer import ModelConfig, Transformer, attention_maps

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_every_key_and_every_file_as_they_are() -> None:
    assert updated(README) == README, "write it anew with: python -m tests.readme"


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/attn train configs/quickstart.yaml",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
    ],
)
def test_the_readme_gives_each_of_its_two_commands_on_a_line_of_its_own(command: str) -> None:
    assert command in README.splitlines()


def test_the_readme_names_every_command_and_every_option() -> None:
    words = [option for command in _commands(typer.main.get_command(app), "attn") for option in command]
    missing = [word for word in words if word not in README]
    assert not missing


def _commands(command: object, path: str) -> list[list[str]]:
    children = getattr(command, "commands", None)
    if children is not None:
        return [found for name, child in children.items() for found in _commands(child, f"{path} {name}")]
    shown = [f"`{option}" for parameter in command.params for option in parameter.opts if option.startswith("--")]
    common = {"`--device", "`--checkpoint", "`--json", "`--port", "`--host", "`--markdown", "`--help"}
    return [[path, *(option for option in shown if option not in common)]]


def test_every_link_of_the_readme_leads_somewhere() -> None:
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if not target.startswith("http")]
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_the_readmes_table_has_every_configuration() -> None:
    files = {path.name for path in (ROOT / "configs").glob("*.yaml")}
    assert files == set(re.findall(r"^\| `(\w+\.yaml)` \|", README, re.MULTILINE))


def test_top_level_holds_the_eight_names_and_a_licence() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.split("/")[0] for line in listed.splitlines()}
    allowed = {"pyproject.toml", "README.md", "LICENSE", "configs", "transformer", "cli", "data", "tests", "runs"}
    assert not {name for name in names - allowed if not name.startswith(".")}


def test_the_wheel_holds_exactly_the_three_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"cli", "data", "transformer"}


def test_the_python_door_opens_without_loading_torch() -> None:
    code = "import sys, transformer; assert 'torch' not in sys.modules; print(sorted(transformer.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ModelConfig', 'Transformer', 'attention_maps', 'open_run']"
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        transformer.train  # noqa: B018


def test_a_model_made_in_python_shows_its_attention() -> None:
    model = Transformer(ModelConfig(d_model=24, n_heads=3, n_layers=2, context_length=7), 11)
    assert attention_maps(model, torch.arange(5)[None]).shape == (2, 1, 3, 5, 5)
