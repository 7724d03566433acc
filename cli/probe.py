"""What heads are measured on: made of a configuration and its text, and kept in the run."""

import numpy as np
import torch
from tokenizers import Tokenizer

from cli.config import Config
from data.errors import DataError
from data.storage import StoredIds
from data.tasks import Task
from data.tokenizer import encode, end_of_text_id, token_units
from transformer.errors import UserError
from transformer.inspection.probe import Probe, baseline, make_repeats
from transformer.inspection.record import Record, StoredProbe
from transformer.model.transformer import Transformer
from transformer.randomness import derive_seed

REPEATS_LENGTH = 64
"""Tokens of a row of repeats, at most."""

TEXT_LENGTH, TEXT_TOKENS, TEXT_ROWS = 256, 1024, (4, 16)
"""Tokens of a row of text, at most; tokens of all rows, about; and the fewest and the most rows."""


def make_probe(config: Config, tokenizer: Tokenizer, text: torch.Tensor) -> Probe:
    """What attention is looked at on: probe_text or the first row of `text`, random tokens, and `text`, (N, T).

    Raises UserError where the vocabulary cannot write probe_text.
    """
    settings, context_length = config.inspection, config.model.context_length
    ids = text[0].tolist()
    if settings.probe_text is not None:
        ids = named_ids("inspection.probe_text", settings.probe_text, tokenizer)
    sentence = torch.tensor(ids[: min(settings.probe_tokens, context_length)])
    n_ordinary = tokenizer.get_vocab_size() - (end_of_text_id(tokenizer) is not None)  # which is the last id
    seed = derive_seed(config.seed, "probe")
    repeats, periods = make_repeats(n_ordinary, min(context_length, REPEATS_LENGTH), seed)
    return Probe(sentence, repeats, periods, text)


def probe_windows(ids: StoredIds, context_length: int) -> torch.Tensor:
    """Windows that are spread over a text and do not overlap: (N,) ids -> (rows, T), as many as `_text_rows` says."""
    length = min(context_length, TEXT_LENGTH, len(ids))
    n_rows = min(_text_rows(length), len(ids) // length)
    starts = np.linspace(0, len(ids) - length, n_rows).astype(np.int64)
    return torch.from_numpy(np.stack([ids[start : start + length] for start in starts]).astype(np.int64))


def probe_rows(task: Task) -> torch.Tensor:
    """Rows of a task: (rows, T)."""
    length = min(task.context_length, TEXT_LENGTH)
    rows = [task.row("validation", number)[0][:length] for number in range(_text_rows(length))]
    return torch.from_numpy(np.stack(rows))


def _text_rows(length: int) -> int:
    fewest, most = TEXT_ROWS
    return max(fewest, min(most, TEXT_TOKENS // length))


def fixed_probe(record: Record, probe: Probe, tokenizer: Tokenizer, model: Transformer) -> StoredProbe:
    """What a run is measured on: what it was from its beginning, or `probe`, kept from now on.

    Raises UserError where the record has a probe that is damaged or not this model's.
    """
    if record.probe_file.exists():
        return kept_probe(record, model)
    stored = store(probe, tokenizer, model)
    record.write_probe(stored)
    return stored


def kept_probe(record: Record, model: Transformer) -> StoredProbe:
    """The probe of a record. Raises UserError where it is damaged or not this model's."""
    stored, shape = record.read_probe(), model.config
    if (stored.n_layers, stored.n_heads) != (shape.n_layers, shape.n_heads) or not fits(stored, model):
        raise UserError(
            f"{record.probe_file}: belongs to another model; remove the folder {record.path}: a run that is resumed "
            "begins a new record"
        )
    return stored


def fits(stored: StoredProbe, model: Transformer) -> bool:
    """Whether a model can read every row."""
    rows = [stored.sentence, *stored.repeats, *stored.text]
    return all(
        len(row) <= model.config.context_length and min(row) >= 0 and max(row) < model.vocab_size for row in rows
    )


def store(probe: Probe, tokenizer: Tokenizer, model: Transformer) -> StoredProbe:
    """A probe as it is kept: with what a uniform head scores on it, and how its sentence reads."""
    sentence = probe.sentence.tolist()
    tokens, groups = token_units(tokenizer, sentence)
    return StoredProbe.model_validate(
        {
            "n_layers": model.config.n_layers,
            "n_heads": model.config.n_heads,
            "sentence": sentence,
            "tokens": tokens,
            "groups": groups,
            "repeats": probe.repeats.tolist(),
            "periods": probe.periods,
            "text": probe.text.tolist(),
            "baseline": baseline(probe),
        }
    )


def named_ids(name: str, text: str, tokenizer: Tokenizer) -> list[int]:
    """Ids of a text. Raises UserError that names the key or option it was given by, and what the vocabulary lacks."""
    try:
        return [int(token) for token in encode(tokenizer, text)]
    except DataError as error:
        raise UserError(f"{name}: {error}") from error
