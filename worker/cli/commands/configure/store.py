"""`interlock store`: create, check, migrate and measure the store."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from worker.cli.commands.configure.store_copy import run_copy
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, told
from worker.core.errors import ConfigError
from worker.core.time.durations import parse_duration
from worker.store.admin import Figure, Migration, StoreAdmin, StoreFinding


async def run_init(screen: Screen, admin: StoreAdmin, *, create_tables: bool, as_json: bool) -> int:
    """Create the store, or add what it lacks; a complete store stays unchanged."""
    made = await admin.init(may_create=create_tables)
    if as_json:
        screen.record({"type": "init", "place": admin.place, "made": made})
    else:
        screen.line(f"made {admin.place}" if made else f"nothing to do: {admin.place} is there and whole")
    return Exit.DONE


async def run_check(screen: Screen, admin: StoreAdmin, *, as_json: bool) -> int:
    verdicts = await admin.check()
    if as_json:
        show_verdict_records(screen, verdicts)
    else:
        show_verdicts(screen, verdicts)
    return Exit.DONE if all(verdict.is_sound for verdict in verdicts) else Exit.PROBLEMS


def show_verdict_records(screen: Screen, verdicts: Sequence[StoreFinding]) -> None:
    for verdict in verdicts:
        screen.record({"type": "verdict", "ok": verdict.is_sound, **asdict(verdict)})


def show_verdicts(screen: Screen, verdicts: Sequence[StoreFinding]) -> None:
    rows = [("ok" if verdict.is_sound else "PROBLEM", verdict.subject, _sentence(verdict)) for verdict in verdicts]
    screen.table(rows, styles=["green" if verdict.is_sound else "red" for verdict in verdicts], indent=0)
    wrong = sum(not verdict.is_sound for verdict in verdicts)
    screen.line(f"{counted(wrong, 'problem')} found" if wrong else "no problems found", "red" if wrong else "green")


def _sentence(verdict: StoreFinding) -> str:
    return verdict.finding if verdict.is_sound else f"{verdict.finding}; {verdict.remedy}"


async def run_migrate(screen: Screen, admin: StoreAdmin, *, backup: bool, as_json: bool) -> int:
    done = await admin.migrate(backup=backup)
    if as_json:
        record = {"before": None, "after": None, "backup": None} if done is None else asdict(done)
        screen.record({"type": "migration", "place": admin.place, **record})
    else:
        show_migration(screen, admin.place, done)
    return Exit.DONE


def show_migration(screen: Screen, place: str, done: Migration | None) -> None:
    if done is None:
        screen.line(f"{place} have no version to migrate; `interlock store check` shows what they lack")
    elif done.before == done.after:
        screen.line(f"{place} has version {done.after} already")
    else:
        screen.line(f"{place} was migrated from version {done.before} to {done.after}")
        screen.line(f"the store as it was is in {done.backup}" if done.backup else "no copy was kept")


async def run_stats(screen: Screen, admin: StoreAdmin, *, as_json: bool) -> int:
    figures = await admin.stats()
    if as_json:
        for figure in figures:
            screen.record({"type": "figure", **asdict(figure)})
    else:
        screen.table([(figure.name, _shown(figure), figure.note) for figure in figures], indent=0)
    return Exit.DONE


def _shown(figure: Figure) -> str:
    return f"{figure.value:,}" if isinstance(figure.value, int) else figure.value


store_app = typer.Typer(
    name="store",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Create, check, migrate and measure the store.

The store is one SQLite file on this machine, four DynamoDB tables, or keys on a Redis server. --store says which; \
without it the variable INTERLOCK_STORE does, and without that it is `interlock.db` in the current directory.""",
)

INIT_HELP = f"""Create the store, or add what it lacks.

A SQLite file is made at once. DynamoDB tables on an endpoint of this machine, too; anywhere else they cost money and \
are made only with --create-tables.

\b
Examples:
  interlock store init
  interlock store init --store sqlite:///interlock.db
  interlock store init --json

{EXIT_CODES}"""

CHECK_HELP = f"""Check everything the store needs (read-only).

SQLite: the file can be written, its version and layout are right, commits wait for the disk, `quick_check` finds \
nothing, the change feed is in order. DynamoDB: each table has its keys, stream, indexes and expiry. Redis: the \
server's version, what its settings promise, its replicas, and the user's rights.

\b
Examples:
  interlock store check
  interlock store check --store sqlite:///interlock.db
  interlock store check --json | jq 'select(.ok | not)'

{EXIT_CODES}"""

MIGRATE_HELP = f"""Migrate a SQLite file to this version, in one transaction.

Copies the file to the same directory first. Stop older workers before: they reject a file with a newer version.

\b
Examples:
  interlock store migrate
  interlock store migrate --no-backup
  interlock store migrate --json

{EXIT_CODES}"""

STATS_HELP = f"""Show how much the store holds: rows, sizes and the age of its change feed.

No table is scanned: SQLite counts along its indexes, and DynamoDB's own counts are some hours old.

\b
Examples:
  interlock store stats
  interlock store stats --store sqlite:///interlock.db
  interlock store stats --json | jq .value

{EXIT_CODES}"""


@store_app.command(help=INIT_HELP)
def init(
    context: typer.Context,
    *,
    create_tables: Annotated[
        bool, typer.Option("--create-tables", help="Make DynamoDB tables, wherever they are.")
    ] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(
        context, store, lambda screen, at: run_init(screen, at.admin, create_tables=create_tables, as_json=as_json)
    )


@store_app.command(help=CHECK_HELP)
def check(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: run_check(screen, at.admin, as_json=as_json))


@store_app.command(help=MIGRATE_HELP)
def migrate(
    context: typer.Context,
    *,
    backup: Annotated[bool, typer.Option("--backup/--no-backup", help="Keep a copy of the file as it was.")] = True,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_migrate(screen, at.admin, backup=backup, as_json=as_json))


@store_app.command(help=STATS_HELP)
def stats(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: run_stats(screen, at.admin, as_json=as_json))


COPY_HELP = f"""Copy an installation to another store, and verify every row.

Stop all workers first: the copy refuses to run while one is alive on either store. The target must be empty. If the \
copy is interrupted, the same command continues it. It does not copy sessions, leases and expired rows: the first \
worker on the new store processes all sensors again. Events of the last hour are sent again, with the same ids, \
because the last ones may not have been sent yet; --resend says how far back.

On DynamoDB it reads and writes each row, which costs money.

\b
Examples:
  interlock store copy sqlite:///interlock.db sqlite:///copy.db
  interlock store copy sqlite:///interlock.db sqlite:///other.db --json
  interlock store copy sqlite:///interlock.db sqlite:///b.db --resend 6h

{EXIT_CODES}"""


@store_app.command("copy", help=COPY_HELP)
def copy(
    context: typer.Context,
    *,
    source: Annotated[str, typer.Argument(metavar="FROM", help="URL of the store to copy.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of an empty store.", show_default=False)],
    resend_events: Annotated[
        str, typer.Option("--resend", metavar="DURATION", help="Send events again that are younger than this.")
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    screen = Screen()

    async def run() -> int:
        resent = timedelta() if resend_events == "0" else parse_duration(resend_events)
        if resent is None:
            raise ConfigError(f"--resend must be a duration such as 30m or 1h, got {resend_events!r}")
        return await run_copy(screen, context.obj, source, target, resent=resent, as_json=as_json)

    raise typer.Exit(told(screen, run))
