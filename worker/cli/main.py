"""Start `interlock`: answer `--version` and `--help` at once, and pass the rest to the application."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper

from worker.cli.terminal.console import OutputFailed, Screen
from worker.cli.version import version_line
from worker.runtime.shown_text import ESCAPED


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # it cannot be written to: what writes the result reports that
                stream.reconfigure(errors=ESCAPED)  # no result is worth an error because of one character
    screen = Screen()
    try:
        try:
            _run(screen, sys.argv[1:])
        finally:
            screen.flush()  # results must be written before the exit code reports success
    except OutputFailed as failed:
        from worker.cli.terminal.store_session import exit_code, show_error  # noqa: PLC0415  most commands need neither

        show_error(screen, failed)
        raise SystemExit(exit_code(failed)) from None


def _run(screen: Screen, words: Sequence[str]) -> None:
    match words:
        case ["--version"]:
            screen.document(version_line())
        case ["--help" | "-h"]:
            from worker.cli.catalogue import PAGE  # noqa: PLC0415  no command needs the list of all

            screen.document(PAGE.text())
        case _:
            _run_command(words)


def _run_command(words: Sequence[str]) -> None:
    from worker.cli.quick_commands import run_quickly  # noqa: PLC0415  the first pages need no command
    from worker.runtime.clock import SystemClock  # noqa: PLC0415

    clock = SystemClock()
    code = run_quickly(words, clock)
    if code is not None:
        raise SystemExit(code)
    # Typer takes longer to load than a quick command takes in total.
    from worker.cli.app import app  # noqa: PLC0415

    app(obj=clock)
