"""Entry point of the `attn` command and of `python -m cli`."""

import io
import os
import sys

EXIT_MENDABLE = 1
EXIT_DIVERGED = 3
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line. What a user can mend ends in one message and exit code 1, never in a traceback."""
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

        say(f"error: {printable(str(error))}")
        sys.exit(code)


def _run_app() -> None:
    """Run the command that was typed. Raises SystemExit, and BrokenPipeError where nobody reads stdout any more."""
    from cli.app import app

    try:
        app()
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
    if isinstance(error, ConfigError | DataError | UserError | OSError):
        return EXIT_MENDABLE
    return None


if __name__ == "__main__":
    main()
