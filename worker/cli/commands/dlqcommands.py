"""The words of `interlock dlq`."""

from typing import Annotated

import typer

from worker.cli.commands.dlq import Which, run_drop, run_list, run_replay, run_show
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store
from worker.core.errors import ConfigError

dlq_app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Dead letters: see what could not be handled or delivered, handle it once more, or let go of it.

A record that cannot be handled is kept here whole, and later changes of the same row follow it for an hour, so that \
none overtakes it. Mend what was wrong, then replay the letter, and with it all of its row, in order; or drop it, and \
write the row again.""",
)

LIST_HELP = f"""List the dead letters, oldest first; exit code 1 if there are any.

\b
Examples:
  interlock dlq list
  interlock dlq list feed.control
  interlock dlq list --json | jq .reason

{EXIT_CODES}"""

SHOW_HELP = f"""Show one dead letter: why it is here, what was tried, and all it holds; as a line of JSON on a pipe.

\b
Examples:
  interlock dlq show feed.control 00000000000000000042@1772539200000
  interlock dlq show route.console 4f1c9a | jq .body.detail
  interlock dlq show queue.sensors 2f9d | jq .history

{EXIT_CODES}"""

REPLAY_HELP = f"""Ask the workers to handle dead letters once more, each as its record was handled.

Safe while workers run. Letters of one row are replayed in order, the oldest first, whichever is named; the first that \
fails again ends it. When none is left, the row's changes are handled as they come again. A queue's message is sent \
back to its queue, an event goes over its route.

\b
Examples:
  interlock dlq replay feed.control 00000000000000000042@1772539200000
  interlock dlq replay queue.alerts
  interlock dlq replay --all

{EXIT_CODES}"""

DROP_HELP = f"""Forget a dead letter; the row it was about is handled again from its next change on.

\b
Examples:
  interlock dlq drop feed.control 00000000000000000042@1772539200000 --yes
  interlock dlq drop route.console 4f1c9a -y
  interlock dlq drop feed.joblog 00000000000000000007@1772539200000

{EXIT_CODES}"""

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Where it came from, as `list` says.")]
AnySource = Annotated[str | None, typer.Argument(metavar="SOURCE", help="Only those of one source.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as `list` says.")]
AnyId = Annotated[str | None, typer.Argument(metavar="ID", help="One letter, by its id; else all of the source.")]


@dlq_app.command("list", help=LIST_HELP)
def list_letters(
    context: typer.Context, source: AnySource = None, *, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    on_store(context, store, lambda screen, at: run_list(screen, at, Which(source), as_json=as_json))


@dlq_app.command(help=SHOW_HELP)
def show(
    context: typer.Context, source: Source, letter: Id, *, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    on_store(context, store, lambda screen, at: run_show(screen, at, Which(source, letter), as_json=as_json))


@dlq_app.command(help=REPLAY_HELP)
def replay(
    context: typer.Context,
    source: AnySource = None,
    letter: AnyId = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every letter of every source.")] = False,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        if everything == (source is not None):
            raise ConfigError("which letters are meant is not clear; name a SOURCE, or add --all")
        return await run_replay(screen, at, Which(source, letter))

    on_store(context, store, work)


@dlq_app.command(help=DROP_HELP)
def drop(
    context: typer.Context,
    source: Source,
    letter: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_drop(screen, at, Which(source, letter), Consent.by_option(yes))

    on_store(context, store, work)
