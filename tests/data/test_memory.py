"""Encoding a large text in bounded memory."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.readme import ROOT

PROSE = "The cat sat on the mat, and the dog's hat was naïve.\n\n" * 37

MEASURED = """
import sys
from data.config import DataConfig
from data.dataset import prepare
from tests.peak import peak

def prepared(source):
    return prepare(DataConfig(source=source, tokenizer=sys.argv[3]), say=str, progress=max)

prepared(sys.argv[1])  # the baseline has every library loaded
baseline = peak()
dataset = prepared(sys.argv[2])
print(peak() - baseline, len(dataset.train) + len(dataset.validation))
"""


@pytest.mark.long
@pytest.mark.parametrize(("kind", "megabytes"), [("char", 1000), ("byte", 1000), ("bpe", 200)])
def test_a_gigabyte_of_text_is_encoded_within_600_megabytes(
    write: Callable[[str, str], Path], tmp_path: Path, kind: str, megabytes: int
) -> None:
    rng = np.random.default_rng(3)
    words = ["".join(map(chr, rng.integers(97, 123, size=rng.integers(1, 9)))) for _ in range(5000)] + ["é", "語"]
    small = write("small.txt", PROSE)
    with Path("large.txt").open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(" ".join(words[index] for index in rng.integers(len(words), size=100_000)) + "\n")

    answer = subprocess.run(
        [sys.executable, "-c", MEASURED, str(small), str(Path("large.txt").absolute()), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    shutil.rmtree(tmp_path)

    taken, tokens = map(int, answer.stdout.split())
    assert taken <= 600_000_000
    assert tokens > megabytes * 1_000_000 / 8
