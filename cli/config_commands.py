"""`attn config`: write, check and explain configuration files."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.config_file import load_config
from cli.config_reference import json_schema_text, keys_markdown, keys_table, starter
from cli.terminal import count, say
from transformer.errors import UserError
from transformer.files import write_text

SCHEMA = Path("configs") / "schema.json"


def init(file: Path) -> None:
    """Write a starter file. Raises UserError where the file exists."""
    if file.exists():
        raise UserError(f"{file}: exists, and is kept; name another file")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, starter(os.path.relpath(SCHEMA, file.parent)))
    say(f"wrote {file}; train with: attn train {file}")


def keys(*, as_markdown: bool) -> None:
    """Write every key to stdout."""
    sys.stdout.write(keys_markdown() if as_markdown else keys_table())


def schema() -> None:
    """Write the JSON Schema to stdout."""
    sys.stdout.write(json_schema_text())


def check(config_file: Path, overrides: Sequence[str]) -> None:
    """Check a file and write to stdout what would run."""
    config = load_config(config_file, overrides)
    from cli.material import gather
    from transformer.model.transformer import Transformer
    from transformer.training.device import choose_device, choose_precision
    from transformer.training.memory import training_bytes

    device = choose_device(config.device)
    precision = choose_precision(config.training.precision, device)
    material = gather(config)
    vocab_size = material.tokenizer.get_vocab_size()
    model = Transformer(config.model, vocab_size)
    training = config.training
    memory = training_bytes(
        config.model, training, n_parameters=model.n_parameters, vocab_size=vocab_size, device=device
    )
    tokens_per_step = training.batch_size * config.model.context_length
    rows = [
        ("data", material.description),
        ("parameters", f"{model.n_parameters:,}"),
        ("tokens per step", f"{tokens_per_step:,} ({training.batch_size} x {config.model.context_length})"),
        ("steps", f"{training.max_steps:,}"),
        ("tokens in all", count(tokens_per_step * training.max_steps)),
    ]
    if material.n_windows is not None:
        epochs = training.max_steps * training.batch_size / material.n_windows
        rows += [("windows", f"{material.n_windows:,} per epoch"), ("epochs", f"{epochs:.2f}")]
    rows += [
        ("memory", f"about {count(memory)}B while training"),
        ("device", f"{device}, {str(precision).removeprefix('torch.')}"),
    ]
    sys.stdout.write(f"{config_file}: valid\n" + "".join(f"  {name:<17}{value}\n" for name, value in rows))
