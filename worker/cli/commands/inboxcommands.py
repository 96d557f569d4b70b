"""The words of `interlock inbox`."""

import os
from typing import Annotated

import typer

from consumers.inbox.rules import Rules
from consumers.inbox.rules_file import rules_from
from worker.cli.commands.inbox import read_message, read_place, run_check, run_put, run_seed, run_test
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store, told
from worker.config.settings import INBOX
from worker.runtime.clock import Clock

inbox_app = typer.Typer(
    name="inbox",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Messages about data that become sensors: check the rules, try them, begin.",
)

CHECK_HELP = f"""Check the rules of an inbox and report every problem at once, each with its line and what to do.

\b
Examples:
  interlock inbox check inbox.yaml
  interlock inbox check examples/inbox/inbox.yaml

{EXIT_CODES}"""

TEST_HELP = f"""Show what would become of a message: which rule is about it, and which sensor it makes.

Nothing is stored. FILE holds the message as the queue has it: a notification of S3, straight, through a topic or \
over a bus; an event; or any other JSON. An object whose content is known already would not be told again; that is not \
looked up here.

\b
Examples:
  interlock inbox test message.json --rules inbox.yaml
  interlock inbox test - < message.json
  interlock inbox test message.json --json | jq .fields

{EXIT_CODES}"""

PUT_HELP = f"""Take a message in now, as a worker takes it from the queue: sensors are written.

\b
Examples:
  interlock inbox put message.json --rules inbox.yaml
  interlock inbox put - < message.json

{EXIT_CODES}"""

SEED_HELP = f"""Note what is in a bucket already, so that the inbox does not tell of it as news.

Only the ledger of objects is written, and nothing that it holds already: the command can be stopped, go on with \
--after, and be repeated, before the inbox runs or while it does.

\b
Examples:
  interlock inbox seed s3://landing/orders/ --rules inbox.yaml
  interlock inbox seed s3://landing
  interlock inbox seed s3://landing --after orders/2026-03-03/part-7.csv

{EXIT_CODES}"""

File = Annotated[str, typer.Argument(metavar="FILE", help="The message, as JSON; - for standard input.")]
RulesFile = Annotated[
    str | None, typer.Option("--rules", metavar="PATH", help="The inbox's rules.", show_default=INBOX)
]


@inbox_app.command(help=CHECK_HELP)
def check(rules: Annotated[str, typer.Argument(metavar="RULES", help="The file of rules.")]) -> None:
    async def work() -> int:
        return run_check(screen, rules)

    screen = Screen()
    raise typer.Exit(told(screen, work))


@inbox_app.command("test", help=TEST_HELP)
def try_out(context: typer.Context, file: File, *, rules: RulesFile = None, as_json: AsJson = False) -> None:
    screen = Screen()
    clock: Clock = context.obj

    async def work() -> int:
        return run_test(screen, _rules(rules), read_message(file, clock), as_json=as_json)

    raise typer.Exit(told(screen, work))


@inbox_app.command(help=PUT_HELP)
def put(
    context: typer.Context, file: File, *, rules: RulesFile = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_put(screen, at, _rules(rules), read_message(file, at.clock), as_json=as_json)

    on_store(context, store, work)


@inbox_app.command(help=SEED_HELP)
def seed(
    context: typer.Context,
    place: Annotated[str, typer.Argument(metavar="PREFIX", help="s3://BUCKET, or s3://BUCKET/PREFIX.")],
    *,
    rules: RulesFile = None,
    after: Annotated[str, typer.Option(metavar="KEY", help="Go on after this key.")] = "",
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_seed(screen, at, _rules(rules), read_place(place), after=after)

    on_store(context, store, work)


def _rules(file: str | None) -> Rules:
    return rules_from(file or os.environ.get(INBOX, ""))
