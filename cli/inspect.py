"""`attn inspect`: one HTML file that shows the attention of a run, at a checkpoint or as a film over training."""

import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from cli.probe import named_ids
from cli.run_arguments import parse_checkpoint, parse_device
from cli.run_heads import measure_run, probe_of_run
from cli.terminal import say
from data.tokenizer import end_of_text_id, token_units
from transformer.errors import UserError
from transformer.files import Json, write_text
from transformer.find_runs import find_run
from transformer.inference.generation import Generation
from transformer.inference.sampling import Sampling
from transformer.inference.text import start_token
from transformer.inspection.capture import attention_maps
from transformer.inspection.predictions import predictions
from transformer.inspection.record import Record, Report
from transformer.inspection.viewer import MAX_SIDE, encode_frame, html_page
from transformer.run_folder import Run, RunFolder, Which, open_run

ALTERNATIVES = 5
"""Likeliest tokens that are shown beside each token of a text."""

FULL_HEADS = 8
"""Of a text that is too long to keep every head in full, the heads that are, unless others are named."""

DRAWN_TOKENS = 32
TEMPERATURE = 0.8


@dataclass(frozen=True)
class InspectOptions:
    """What is looked at, and where the page goes. None is what was not asked for."""

    text: str | None
    prompt: str | None
    n_tokens: int | None
    temperature: float | None
    seed: int | None
    film: bool
    frames: int | None
    checkpoint: str | None
    against: str | None
    heads: str | None
    budget_mb: float
    out: Path | None


@dataclass(frozen=True)
class Sentence:
    """Token ids that are looked at; where `prompt_length` of them were given, the others were drawn."""

    ids: list[int]
    prompt_length: int | None = None


@dataclass(frozen=True)
class Other:
    """What is compared with: a run, and which of its checkpoints was asked for."""

    folder: RunFolder
    checkpoint: Which | None


def inspect(run: str | None, options: InspectOptions, *, device: str, runs: Path) -> None:
    """Write the page and, to stdout, its path. Raises UserError where a wish cannot be met."""
    _refuse_what_has_no_effect(options)
    folder = find_run(run, runs)
    out = folder.viewer_file if options.out is None else options.out
    target = _target(out)
    other = None if options.against is None else _other_run(options.against, folder, runs)
    views = _films(folder, other, options) if options.film else _stills(folder, other, options, parse_device(device))
    page = html_page(views, budget_mb=options.budget_mb)
    try:
        write_text(target, page)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from error
    say("open this file in a browser; it needs no network:")
    sys.stdout.write(f"{out}\n")


def _target(out: Path) -> Path:
    """The file that the page becomes, links followed. Raises UserError where it would replace what is no file."""
    target = Path(os.path.realpath(out))
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or a pipe"
        raise UserError(f"{out}: is {kind}; name a file with --out")
    if not target.parent.is_dir():
        raise UserError(f"{out}: there is no folder {target.parent}; make it, or name another file with --out")
    return target


def _refuse_what_has_no_effect(options: InspectOptions) -> None:
    """Raises UserError for an option that another one makes pointless."""
    if options.text is not None and options.prompt is not None:
        raise UserError("--text and --prompt: two texts; leave one of them out")
    pointless: list[tuple[bool, str, dict[str, object]]] = [
        (
            options.prompt is None,
            "without --prompt",
            {"--tokens": options.n_tokens, "--temperature": options.temperature, "--seed": options.seed},
        ),
        (not options.film, "without --film", {"--frames": options.frames}),
        (
            options.film,
            "with --film, which shows what was recorded while the run trained",
            {
                "--text": options.text,
                "--prompt": options.prompt,
                "--checkpoint": options.checkpoint,
                "--heads": options.heads,
            },
        ),
    ]
    for is_so, when, values in pointless:
        for name, value in values.items():
            if is_so and value is not None:
                raise UserError(f"{name}: has no effect {when}; leave it out")


def _other_run(text: str, folder: RunFolder, runs: Path) -> Other:
    """What `--against` names: a run, a run and its checkpoint, or with @ alone a checkpoint of the same run."""
    name, at, checkpoint = text.rpartition("@")
    if not at:
        return Other(find_run(text, runs), None)
    wanted = parse_checkpoint(checkpoint, given=f"--against {text}")
    return Other(find_run(name, runs) if name else folder, wanted)


# Films


def _films(folder: RunFolder, other: Other | None, options: InspectOptions) -> list[Json]:
    """One view, or with `other` two, of the same sentence."""
    views = [_film(folder, options.frames)]
    if other is not None:
        if other.checkpoint is not None:
            raise UserError(
                f"--against {options.against}: @{other.checkpoint} has no effect with --film, which shows what was "
                "recorded while the run trained; leave it out"
            )
        views.append(_film(other.folder, options.frames))
        if views[1]["tokens"] != views[0]["tokens"]:
            raise UserError(
                f"--against {options.against}: the two runs recorded different sentences; train both with the same "
                "inspection.probe_text, or leave --film out and name a --text"
            )
    return views


def _film(folder: RunFolder, n_frames: int | None) -> Json:
    """The record of a run, of at most `n_frames` of its steps. Raises UserError where nothing was recorded."""
    record = Record(folder.inspection_folder)
    steps = record.map_steps()
    if not steps:
        raise UserError(
            f"{folder.path}: no attention was recorded while this run trained (inspection.maps); leave --film out to "
            "look at a checkpoint"
        )
    if n_frames is not None and n_frames < len(steps):
        steps = [steps[round(index * (len(steps) - 1) / max(1, n_frames - 1))] for index in range(n_frames)]
    return record.view(folder.name, steps=steps)


# Checkpoints


def _stills(folder: RunFolder, other: Other | None, options: InspectOptions, device: str) -> list[Json]:
    """One view, or with `other` two, of the same tokens."""
    checkpoint = "best" if options.checkpoint is None else options.checkpoint
    opened = open_run(folder.path, parse_checkpoint(checkpoint), device=device)
    sentence = _sentence(opened, options)
    views = [_still(opened, sentence, options.heads)]
    if other is not None:
        second = open_run(other.folder.path, "best" if other.checkpoint is None else other.checkpoint, device=device)
        if second.tokenizer.to_str() != opened.tokenizer.to_str():
            raise UserError(
                f"--against {options.against}: was trained with other tokens than {folder.name}; only runs of the same "
                "tokenizer can be compared"
            )
        _check_length(len(sentence.ids), second)
        views.append(_still(second, sentence, options.heads))
    return views


def _sentence(opened: Run, options: InspectOptions) -> Sentence:
    """The tokens to look at: of --text, of --prompt and what the model draws after it, or the run's own."""
    if options.text is not None:
        ids = named_ids("--text", options.text, opened.tokenizer)
        if not ids:
            raise UserError("--text: has no token; give it at least one character")
        _check_length(len(ids), opened)
        return Sentence(ids)
    if options.prompt is None:
        return Sentence(probe_of_run(opened).sentence)
    prompt = named_ids("--prompt", options.prompt, opened.tokenizer) or [start_token(opened.tokenizer)]
    room = opened.config.context_length - len(prompt)
    n_tokens = max(1, min(DRAWN_TOKENS, room)) if options.n_tokens is None else options.n_tokens
    _check_length(len(prompt) + n_tokens, opened)
    generation = Generation(
        opened.model,
        [prompt],
        seeds=[options.seed or 0],
        sampling=Sampling(temperature=TEMPERATURE if options.temperature is None else options.temperature),
        end_token=end_of_text_id(opened.tokenizer),
    )
    for _ in generation.steps(n_tokens):
        pass
    return Sentence(generation.rows[0].tokens, prompt_length=len(prompt))


def _check_length(n_tokens: int, opened: Run) -> None:
    if n_tokens > opened.config.context_length:
        raise UserError(
            f"{n_tokens} tokens do not fit the context of {opened.config.context_length} tokens that "
            f"{opened.folder.name} was trained with; use fewer"
        )


def _still(opened: Run, sentence: Sentence, heads: str | None) -> Json:
    """What a page shows of one checkpoint."""
    shape = opened.config
    chosen = None if heads is None else _parse_heads(heads, shape.n_layers, shape.n_heads)
    stored = probe_of_run(opened)
    report = measure_run(opened, stored)
    if chosen is None and len(sentence.ids) > MAX_SIDE:
        chosen = strongest_heads(report)
        say(f"in full: heads {', '.join(f'{layer}.{head}' for layer, head in chosen)}; the others are pooled")
    ids = torch.tensor(sentence.ids, device=opened.model.embedding.weight.device)
    maps = attention_maps(opened.model, ids[None])[:, 0].cpu().numpy()
    tokens, groups = token_units(opened.tokenizer, sentence.ids)
    return {
        "name": opened.folder.name,
        "n_layers": shape.n_layers,
        "n_heads": shape.n_heads,
        "tokens": tokens,
        "groups": groups,
        "prompt_length": sentence.prompt_length,
        "predictions": [None, *_expectations(opened, ids)],
        "baseline": stored.baseline,
        "frames": [encode_frame(opened.step, maps, heads=chosen or (), report=report.model_dump(mode="json"))],
    }


def _expectations(opened: Run, ids: torch.Tensor) -> list[Json | None]:
    """For every token but the first, how likely it was and which tokens were the likeliest; None for no numbers."""
    expected = predictions(opened.model, ids, n_alternatives=ALTERNATIVES)
    likeliest = [token for prediction in expected for token, _ in prediction.alternatives]
    tokens = iter(token_units(opened.tokenizer, likeliest)[0])
    shown = [[[next(tokens), share] for _, share in prediction.alternatives] for prediction in expected]
    return [
        {"probability": prediction.probability, "alternatives": alternatives}
        if math.isfinite(prediction.probability)
        else None
        for prediction, alternatives in zip(expected, shown, strict=True)
    ]


def strongest_heads(report: Report) -> list[tuple[int, int]]:
    """The FULL_HEADS heads whose knock-out changes the loss most, in their order."""
    changes = [
        (-abs(value or 0.0), layer, head)
        for layer, row in enumerate(report.scores["knockout"])
        for head, value in enumerate(row)
    ]
    return sorted((layer, head) for _, layer, head in sorted(changes)[:FULL_HEADS])


def _parse_heads(text: str, n_layers: int, n_heads: int) -> list[tuple[int, int]]:
    """`0.3,1.2` as pairs of layer and head, each once. Raises UserError."""
    chosen = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})\.([0-9]{1,6})\s*", word)
        if match is None or int(match[1]) >= n_layers or int(match[2]) >= n_heads:
            raise UserError(
                f"--heads {text}: {word.strip() or 'nothing'} is no head of this model; write layer.head, with layers "
                f"0 to {n_layers - 1} and heads 0 to {n_heads - 1}, as in --heads 0.0,{n_layers - 1}.{n_heads - 1}"
            )
        chosen.append((int(match[1]), int(match[2])))
    return list(dict.fromkeys(chosen))
