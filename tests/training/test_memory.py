"""The estimate of training's memory against what a process really takes."""

import subprocess
import sys

import pytest

from tests.readme import ROOT

MEASURE = """
import sys
import torch
import torch.nn.functional as F
from tests.peak import peak
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.config import TrainingConfig
from transformer.training.memory import training_bytes
from transformer.training.optimizers import build_optimizers

def train(config, training, vocab_size, steps):
    model = Transformer(config, vocab_size)
    optimizers = build_optimizers(model, training)
    ids = torch.zeros(training.batch_size, config.context_length, dtype=torch.long)
    for _ in range(steps):
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return model.n_parameters

train(ModelConfig(d_model=8, n_heads=2, n_layers=1, context_length=4), TrainingConfig(batch_size=1), 5, 1)
before = peak()
config, training = ModelConfig(d_model=256, context_length=128, dropout=float(sys.argv[1])), TrainingConfig()
n_parameters = train(config, training, 1031, 2)
print(peak() - before)
print(training_bytes(config, training, n_parameters=n_parameters, vocab_size=1031, device=torch.device("cpu")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("dropout", ["0.0", "0.1"])
def test_the_estimate_is_within_a_third_of_what_training_takes(dropout: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, dropout], cwd=ROOT, capture_output=True, text=True, check=True
    )
    measured, estimated = map(int, done.stdout.split())
    assert estimated == pytest.approx(measured, rel=1 / 3)
