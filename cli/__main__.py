"""Entry point of the `attn` command and of `python -m cli`."""

import io
import os
import sys
from pathlib import Path

EXIT_MENDABLE = 1
EXIT_DIVERGED = 3
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line. What a user can mend ends in one message and exit code 1, never in a traceback."""
    _open_closed_streams()
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    try:
        _run_app()
    except BrokenPipeError:  # the reader of stdout has gone, as in `attn generate | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        from cli.terminal import printable, say

        say(f"error: {printable(_message(error))}")
        sys.exit(code)


def _open_closed_streams() -> None:
    """Let a stream that was closed, as by `2>&-`, lead nowhere; else a file of a run would get its descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _run_app() -> None:
    """Run the command that was typed. Raises SystemExit, and BrokenPipeError where nobody reads stdout any more."""
    from cli.app import app

    try:
        app(prog_name="attn")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer has made exit code 1 of it
            raise end.__context__ from None
        sys.stdout.flush()
        raise


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can mend, None for one that only we can."""
    from cli.errors import ConfigError
    from data.errors import DataError
    from transformer.errors import DivergedError, UserError

    if isinstance(error, DivergedError):
        return EXIT_DIVERGED
    if isinstance(error, ConfigError | DataError | UserError | OSError) or _is_out_of_memory(error):
        return EXIT_MENDABLE
    return None


def _message(error: Exception) -> str:
    if _is_out_of_memory(error):
        return f"not enough memory; make the model, the context or the batch smaller ({error})"
    return str(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of which torch tells in words only: on the CPU, on CUDA, and of an impossible size."""
    words = ("allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


if __name__ == "__main__":
    main()
