"""`attn generate`: continue a prompt with a run's model."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from cli.run_arguments import open_model
from cli.terminal import dim, printable, say
from data.tokenizer import encode
from transformer.errors import UserError
from transformer.inference.sampling import Sampling
from transformer.inference.text import Continuation, TextGeneration
from transformer.run_folder import Run


@dataclass(frozen=True)
class GenerateOptions:
    """How texts are drawn and shown."""

    n_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    seed: int
    n_samples: int
    as_json: bool


def generate(
    run: str | None,
    prompt: str,
    options: GenerateOptions,
    *,
    checkpoint: str,
    device: str,
    interactive: bool,
    runs: Path,
) -> None:
    """Write continuations to stdout: as they are drawn, or one JSON object per line."""
    if interactive and prompt:
        raise UserError("--prompt: has no effect with --interactive, which asks for prompts; leave one of them out")
    if not all(options.stop):
        raise UserError("--stop: a stop text needs at least one character")
    if prompt == "-":
        prompt = _read_standard_input()
    opened = open_model(run, checkpoint, device, runs)
    if interactive:
        _converse(opened, options)
    else:
        _answer(opened, prompt, options)


def _converse(opened: Run, options: GenerateOptions) -> None:
    while True:
        sys.stderr.write("prompt> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.strip("\n"):
            say()
            return
        try:
            _answer(opened, line.removesuffix("\n"), options)
        except ValueError as error:
            say(f"error: {printable(str(error))}")


def _answer(opened: Run, prompt: str, options: GenerateOptions) -> None:
    writing = TextGeneration(
        opened.model,
        opened.tokenizer,
        [_prompt_ids(opened.tokenizer, prompt)] * options.n_samples,
        seeds=range(options.seed, options.seed + options.n_samples),
        sampling=options.sampling,
        stop=options.stop,
    )
    pieces = writing.pieces(options.n_tokens)
    if options.n_samples == 1 and not options.as_json:
        _write(prompt)
        for _, piece in pieces:
            _write(piece)
        _write("\n")
        return
    for _ in pieces:
        pass
    if options.as_json:
        _write("".join(_as_json(prompt, row) + "\n" for row in writing.rows))
    else:
        _write_samples(prompt, writing.rows)


def _write_samples(prompt: str, rows: Sequence[Continuation]) -> None:
    for row in rows:
        say(dim(f"--- seed {row.seed} ---"))
        _write(f"{prompt}{row.text}\n")


def _as_json(prompt: str, row: Continuation) -> str:
    answer = {"prompt": prompt, "text": row.text, "tokens": row.tokens, "seed": row.seed, "finish": row.finish}
    return json.dumps(answer, ensure_ascii=False)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Raises DataError with the characters that the vocabulary lacks."""
    return [int(token) for token in encode(tokenizer, prompt)]


def _read_standard_input() -> str:
    content = sys.stdin.buffer.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input: byte {error.start} is no UTF-8; the prompt must be UTF-8 text") from error
