"""Measuring the heads of a run that is there, for the commands that look at it."""

import time

from cli.config_file import load_config
from cli.material import task_of
from cli.probe import kept_probe, make_probe, probe_rows, probe_windows, store
from data.storage import open_ids
from transformer.inspection.probe import measure
from transformer.inspection.record import Record, Report, StoredProbe
from transformer.run_folder import Run


def probe_of_run(opened: Run) -> StoredProbe:
    """The probe that a run was measured on while it trained; of a run that recorded none, the one it would have had.

    Raises UserError or DataError where a file of the run is damaged.
    """
    record = Record(opened.folder.inspection_folder)
    if record.probe_file.exists():
        return kept_probe(record, opened.model)
    config = load_config(opened.folder.config_file)
    if config.data.task is not None:
        text = probe_rows(task_of(config))
    else:
        ids = open_ids(opened.folder.validation_file, opened.tokenizer.get_vocab_size())
        text = probe_windows(ids, config.model.context_length)
    return store(make_probe(config, opened.tokenizer, text), opened.tokenizer, opened.model)


def measure_run(opened: Run, stored: StoredProbe) -> Report:
    """Every score of an opened run's heads."""
    started = time.perf_counter()
    measurement = measure(opened.model, stored.probe(device=opened.model.embedding.weight.device))
    return Report.model_validate(measurement.line(opened.step, seconds=time.perf_counter() - started))
