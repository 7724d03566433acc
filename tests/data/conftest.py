from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and an empty cache beside it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("ATTN_CACHE_DIR", str(tmp_path / "cache"))
    return work


@pytest.fixture
def write(folder: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file below the working directory."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_file
