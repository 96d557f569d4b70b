"""The words of `interlock store`."""

from typing import Annotated

import typer

from worker.cli.commands.store import run_check, run_init, run_migrate, run_stats
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store

store_app = typer.Typer(
    name="store",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Make, check, migrate and measure the store.

The store is one SQLite file on this machine, or four DynamoDB tables. --store says which; without it the variable \
INTERLOCK_STORE does, and without that it is `interlock.db` in the current directory.""",
)

INIT_HELP = f"""Make the store, or add what it lacks; one that is whole is left as it is.

A SQLite file is made at once. DynamoDB tables on an endpoint of this machine, too; anywhere else they cost money and \
are made only with --create-tables.

\b
Examples:
  interlock store init
  interlock store init --store sqlite:///interlock.db
  interlock store init --json

{EXIT_CODES}"""

CHECK_HELP = f"""Look at everything the store needs to work, and change nothing.

SQLite: the file can be written, its version and layout are right, commits wait for the disk, `quick_check` finds \
nothing, the change feed is in order. DynamoDB: each table has its keys, stream, indexes and expiry.

\b
Examples:
  interlock store check
  interlock store check --store sqlite:///interlock.db
  interlock store check --json | jq 'select(.ok | not)'

{EXIT_CODES}"""

MIGRATE_HELP = f"""Bring a SQLite file of an earlier version up to this program's, in one transaction.

A copy of the file is kept beside it first. Stop older workers before: they refuse a file that is newer than they are.

\b
Examples:
  interlock store migrate
  interlock store migrate --no-backup
  interlock store migrate --json

{EXIT_CODES}"""

STATS_HELP = f"""Show how much the store holds: rows, sizes, and how far back the change feed goes.

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
