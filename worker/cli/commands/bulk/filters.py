"""The options that select runs, the same for every command about many runs."""

from typing import Annotated

import typer

StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="failed, completed, running, active, ended …; may be repeated."),
]
OutcomeOption = Annotated[
    list[str] | None, typer.Option("--outcome", metavar="OUTCOME", help="failed, timed-out …; may be repeated.")
]
PipelineOption = Annotated[
    str, typer.Option("--pipeline", metavar="GLOB", help="An id, or a pattern such as orders-*.")
]
OwnerOption = Annotated[str, typer.Option("--owner", metavar="NAME", help="The owner of the pipeline.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help="Ended since: 7d, 2h, 2026-03-03 …")]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help="Ended before: 1d, 2026-03-03 …")]
ErrorOption = Annotated[str, typer.Option("--error", metavar="PREFIX", help="The beginning of the reason.")]
DeadlineOption = Annotated[str, typer.Option("--deadline", metavar="VERDICT", help="breached, met, waived or open.")]


def words(given: list[str] | None) -> tuple[str, ...]:
    return tuple(given or ())
