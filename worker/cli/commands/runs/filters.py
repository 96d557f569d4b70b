"""The options of `interlock runs` that say which runs, and the pages that answer them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen
from worker.core.errors import ConfigError
from worker.core.model.ids import PipelineId
from worker.operations.runs.cursors import BadCursor
from worker.operations.runs.run_filter import BadFilter, RunFilter, WindowTooLong
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

_STATES = "failed, completed, cancelled, waiting, starting, running, stopping, active or ended; may be repeated."
States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help=_STATES),
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(
        "--outcome", metavar="OUTCOME", help="succeeded, failed, timed-out, exhausted, and others; repeatable."
    ),
]
PipelineGlob = Annotated[
    str, typer.Option("--pipeline", metavar="GLOB", help="Only pipelines of this id or pattern, such as 'orders-*'.")
]
Owner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Only pipelines of this owner.")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Only runs that ended before this time or age.")]
ErrorPrefix = Annotated[
    str, typer.Option("--error", metavar="PREFIX", help="Only runs whose reason begins with this, in any case.")
]
DeadlineWord = Annotated[str, typer.Option("--deadline", metavar="VERDICT", help="breached, met, waived or open.")]
Cursor = Annotated[
    str | None, typer.Option("--after", metavar="CURSOR", help="Continue after an earlier list with the same filters.")
]


@contextmanager
def bad_filter_is_misuse() -> Generator[None]:
    """Raise `ConfigError` for a wrong filter or cursor, because the user must change the command."""
    try:
        yield
    except (BadFilter, WindowTooLong, BadCursor) as error:
        raise ConfigError(str(error)) from error


def filter_of(
    states: list[str] | None,
    outcomes: list[str] | None,
    *,
    pipeline: str = "",
    owner: str = "",
    since: str = "",
    until: str = "",
    error: str = "",
    deadline: str = "",
) -> RunFilter:
    """Return the filter of the options; a list in one option is separated by commas."""
    return RunFilter(
        statuses=_words(states),
        outcomes=_words(outcomes),
        pipeline=pipeline,
        owner=owner,
        since=since,
        until=until,
        error=error,
        deadline=deadline,
    )


async def say_if_unknown(screen: Screen, tables: Tables, wanted: RunFilter) -> int | None:
    """Report a filter by one pipeline that is not in the store; None if it names none, or one that exists.

    Call it if nothing was found: runs outlive their pipeline.
    """
    if not wanted.pipeline or any(mark in wanted.pipeline for mark in "*?["):
        return None
    if await Pipelines(tables).get(PipelineId(wanted.pipeline)) is not None:
        return None
    from worker.cli.terminal.pipeline_lookup import say_unknown  # noqa: PLC0415  it loads what reads pipelines

    return await say_unknown(screen, tables, PipelineId(wanted.pipeline))


def _words(given: list[str] | None) -> tuple[str, ...]:
    return tuple(word.strip() for text in given or () for word in text.split(",") if word.strip())
