"""Start `interlock`: answer `--version` and `--help` at once, and pass the rest to the application."""

import sys
from collections.abc import Sequence

from worker.cli.catalogue import PAGE
from worker.cli.terminal.console import OutputFailed, Screen
from worker.cli.version import version_line


def main() -> None:
    screen = Screen()
    try:
        try:
            _run(screen, sys.argv[1:])
        finally:
            screen.flush()  # results must be written before the exit code reports success
    except OutputFailed as failed:
        from worker.cli.terminal.store_access import exit_code, show_error  # noqa: PLC0415  most commands need neither

        show_error(screen, failed)
        raise SystemExit(exit_code(failed)) from None


def _run(screen: Screen, words: Sequence[str]) -> None:
    match words:
        case ["--version"]:
            screen.document(version_line())
        case ["--help" | "-h"]:
            screen.document(PAGE.text())
        case _:
            # Typer takes longer to load than both cases above take in total.
            from worker.cli.app import app  # noqa: PLC0415
            from worker.runtime.clock import SystemClock  # noqa: PLC0415

            app(obj=SystemClock())
