"""The words of `interlock deadletters`."""

from typing import Annotated

import typer

from worker.cli.consent import Consent
from worker.cli.console import Screen
from worker.cli.deadletters import LetterName, run_drop, run_list, run_show
from worker.cli.onstore import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store

deadletters_app = typer.Typer(
    name="deadletters",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""See what could not be handled or delivered, and let go of it.

A record that can never be handled is kept here whole, and later changes of the same row follow it for an hour, so \
that none overtakes it. Mend whoever wrote the row, drop the letter, and write the row again.""",
)

LIST_HELP = f"""List the dead letters, oldest first; exit code 1 if there are any.

\b
Examples:
  interlock deadletters list
  interlock deadletters list --json | jq .reason
  interlock deadletters list --store sqlite:///interlock.db

{EXIT_CODES}"""

SHOW_HELP = f"""Show one dead letter as JSON: why it is here, what was tried, and all it holds.

\b
Examples:
  interlock deadletters show feed.control 00000000000000000042@1772539200000
  interlock deadletters show route.console 4f1c9a | jq .body.detail
  interlock deadletters show feed.joblog 00000000000000000007@1772539200000 | jq .history

{EXIT_CODES}"""

DROP_HELP = f"""Forget a dead letter; the row it was about is handled again from its next change on.

\b
Examples:
  interlock deadletters drop feed.control 00000000000000000042@1772539200000 --yes
  interlock deadletters drop route.console 4f1c9a -y
  interlock deadletters drop feed.joblog 00000000000000000007@1772539200000

{EXIT_CODES}"""

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Where it came from, as `list` says.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as `list` says.")]


@deadletters_app.command("list", help=LIST_HELP)
def list_letters(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: run_list(screen, at, as_json=as_json))


@deadletters_app.command(help=SHOW_HELP)
def show(context: typer.Context, source: Source, letter: Id, *, store: StoreUrl = None) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_show(screen, at, LetterName(source, letter))

    on_store(context, store, work)


@deadletters_app.command(help=DROP_HELP)
def drop(
    context: typer.Context,
    source: Source,
    letter: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_drop(screen, at, LetterName(source, letter), Consent.by_option(yes))

    on_store(context, store, work)
