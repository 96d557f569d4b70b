"""`interlock inbox`: check and test inbox rules, process a message now, and seed from a bucket."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.counts import InboxCounts
from consumers.inbox.notifications import BadNotification, News, NoNotification, read_notification
from consumers.inbox.rules import BucketPrefix, Mapped, Rules
from consumers.inbox.rules_file import check_rules, rules_from
from consumers.inbox.seeding import Bucket, Seeder, SeedProgress
from consumers.queues.queue import Message
from worker.cli.terminal.console import Screen, counted, json_text
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess, told
from worker.config.files import UnreadableFile, read_text
from worker.config.problems import ProblemSeverity
from worker.config.settings import INBOX
from worker.core.errors import ConfigError, Rejected, WorkerError
from worker.core.model.values import Json
from worker.operations.pipelines.lookup import pipeline_in
from worker.operations.sensors.advice import period_warnings
from worker.runtime.clock import Clock
from worker.runtime.logs import logs_kept_back
from worker.store.repos.delivery.inbox_ledger import SensorReport
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensor
from worker.store.url import DynamoPlace, locate

STDIN: Final = "-"
LISTING_S: Final = 20.0
MESSAGE_CHARS_MAX: Final = 1024 * 1024  # the most that a queue's message holds


def read_message(file: str, clock: Clock) -> Message:
    """Read a message from a file, or from standard input for `-`. Raises `ConfigError`."""
    if file == STDIN:
        body = sys.stdin.read(MESSAGE_CHARS_MAX + 1)
    else:
        try:
            body = read_text(Path(file))
        except UnreadableFile as error:
            raise ConfigError(f"the message {file} {error}; name another file") from error
    if len(body) > MESSAGE_CHARS_MAX:
        raise ConfigError(f"the message is larger than {MESSAGE_CHARS_MAX:,} characters; no queue would hold it")
    return Message(id=file, handle="", body=body, sent_at=clock.now())


# --- check and test ---------------------------------------------------------------------------------------------------


def run_check(screen: Screen, file: str) -> int:
    """Report every problem of a rules file."""
    try:
        rules, problems = check_rules(read_text(Path(file)), file)
    except UnreadableFile as error:
        raise ConfigError(f"the inbox file {file} {error}; name another, or set {INBOX}") from error
    for problem in problems:
        screen.line(str(problem), style="red" if problem.severity is ProblemSeverity.ERROR else "yellow")
    if rules is None:
        return Exit.PROBLEMS
    screen.line(f"{file}: {counted(len(rules), 'rule')}, valid")
    return Exit.DONE


def run_test(screen: Screen, rules: Rules, message: Message, *, as_json: bool) -> int:
    """Show which sensors a message would write, and store nothing.

    Return exit code 1 if any part of the message could not be used.
    """
    is_used = True
    for news in _news_in(message):
        try:
            found = [mapped for rule in rules if (mapped := rule.map(news)) is not None]
        except Rejected as refusal:
            screen.remark(str(refusal), style="red")
            is_used = False
            continue
        is_used = is_used and bool(found or isinstance(news, NoNotification))
        _show_news(screen, news, found, as_json=as_json)
    return Exit.DONE if is_used else Exit.PROBLEMS


def _news_in(message: Message) -> Sequence[News]:
    """Return the notifications in a message.

    Raises `Rejected` if it cannot be read, with a remedy for a user who has the message: nothing of it is stored.
    """
    try:
        return list(read_notification(message))
    except BadNotification as problem:
        raise Rejected(
            f"the message {message.id} cannot be understood: {problem.problem}; give it whole, as the queue has it"
        ) from problem


def _show_news(screen: Screen, news: News, found: Sequence[Mapped], *, as_json: bool) -> None:
    if as_json:
        for mapped in found:
            screen.record(_record(news, mapped))
        return
    screen.line(str(news), style="bold")
    if isinstance(news, NoNotification):
        screen.line("  it needs no sensor")
    elif not found:
        screen.line("  no rule matches it: the worker would count and delete it", style="yellow")
    for mapped in found:
        screen.table([(name, value if isinstance(value, str) else json_text(value)) for name, value in _said(mapped)])


def _said(mapped: Mapped) -> list[tuple[str, Json]]:
    report = mapped.report
    period = "none: the day it arrives" if mapped.period is None else str(mapped.period)
    return [
        ("rule", mapped.rule),
        ("pipeline", report.pipeline),
        ("sensor", report.key),
        ("period", period),
        ("fields", report.data if mapped.role is None else {"collects": mapped.role}),
    ]


def _record(news: News, mapped: Mapped) -> dict[str, Json]:
    period = None if mapped.period is None else str(mapped.period)
    return {"type": "inbox", "news": str(news), **dict(_said(mapped)), "period": period}


# --- put --------------------------------------------------------------------------------------------------------------


async def run_put(screen: Screen, access: StoreAccess, rules: Rules, message: Message, *, as_json: bool) -> int:
    """Process a message as the worker does, and warn about sensors that will start nothing."""
    found = _news_in(message)
    async with access.tables() as tables:
        for report in _reports(rules, found):
            sensor = Sensor(report.key, report.data)
            stored = await Pipelines(tables).get(report.pipeline)
            if stored is not None and (pipeline := pipeline_in(stored)) is not None:
                for warning in await period_warnings(tables, pipeline, sensor, access.clock.now()):
                    screen.remark(f"warning: {warning}", style="yellow")
        inbox = SensorInbox(tables, rules, access.clock)
        try:
            with logs_kept_back():  # the command shows below what the log would say
                await inbox.handle(message)
        finally:
            _show_counts(screen, inbox.counts, as_json=as_json)
    return Exit.DONE


def _reports(rules: Rules, found: Sequence[News]) -> Iterator[SensorReport]:
    for rule, news in product(rules, found):
        with suppress(Rejected):  # `handle` reports it when it processes the message
            if mapped := rule.map(news):
                yield mapped.report


def _show_counts(screen: Screen, counts: InboxCounts, *, as_json: bool) -> None:
    said = asdict(counts)
    if as_json:
        screen.record({"type": "inbox-summary", "seen": counts.seen, **said})
    else:
        screen.line(f"seen {counts.seen}: " + ", ".join(f"{number} {name}" for name, number in said.items()))


# --- seed -------------------------------------------------------------------------------------------------------------


def read_place(text: str) -> BucketPrefix:
    """Read `s3://bucket/prefix`. Raises `ConfigError`."""
    bucket, _, prefix = text.removeprefix("s3://").partition("/")
    if not text.startswith("s3://") or not bucket:
        raise ConfigError(f"{text!r} is no place in S3; write s3://BUCKET or s3://BUCKET/PREFIX")
    return BucketPrefix(bucket=bucket, prefix=prefix)


async def run_seed(screen: Screen, access: StoreAccess, rules: Rules, place: BucketPrefix, *, after: str) -> int:
    """Mark the objects in a bucket as known, page by page; if it is interrupted, say how to continue."""
    progress = SeedProgress(after=after)
    async with access.tables() as tables, _bucket(access.url, place.bucket) as bucket:
        seeding = Seeder(tables, rules, access.clock)
        if not seeding.is_about(place):
            raise ConfigError(f"no rule of the inbox matches any object in {place}; check the place and the rules")
        try:
            async for progress in seeding.run(bucket, place, after):
                screen.remark(f"{progress.listed:,} objects, up to {progress.after}")
        except (WorkerError, asyncio.CancelledError):
            rest = f" --after {quote(progress.after)}" if progress.after else ""
            screen.remark(f"stopped; continue with: interlock inbox seed {quote(str(place))}{rest}", style="red")
            raise
    screen.line(
        f"{counted(progress.listed, 'object')} in {place}: {progress.noted:,} noted, {progress.known:,} known already, "
        f"{progress.unmatched:,} without a rule"
    )
    return Exit.DONE


def _bucket(url: str, bucket: str) -> AbstractAsyncContextManager[Bucket]:
    """Open the bucket in the store's region; for a SQLite store, the AWS environment decides."""
    # Loaded here, so that the other commands need not wait for the AWS library.
    from consumers.inbox.s3 import open_bucket  # noqa: PLC0415
    from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415

    at = locate(url)
    region, endpoint = (at.region, at.endpoint) if isinstance(at, DynamoPlace) else (None, None)
    return open_bucket(bucket, ClientSettings(region=region, endpoint=endpoint, read_s=LISTING_S, agent=PERSON))


inbox_app = typer.Typer(
    name="inbox",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Check and test the rules that turn messages into sensors.",
)

CHECK_HELP = f"""Check inbox rules and report every problem with its line and its fix.

\b
Examples:
  interlock inbox check inbox.yaml
  interlock inbox check examples/inbox/inbox.yaml

{EXIT_CODES}"""

TEST_HELP = f"""Show which rule matches a message and which sensor it writes.

Nothing is stored. FILE holds the message as the queue has it: an S3 notification (direct, through a topic or \
over a bus), an event, or any other JSON. The worker skips an object whose content it knows already; this command does \
not check that.

\b
Examples:
  interlock inbox test message.json --rules inbox.yaml
  interlock inbox test - < message.json
  interlock inbox test message.json --json | jq .fields

{EXIT_CODES}"""

PUT_HELP = f"""Process a message now, as a worker would.

\b
Examples:
  interlock inbox put message.json --rules inbox.yaml
  interlock inbox put - < message.json

{EXIT_CODES}"""

SEED_HELP = f"""Mark the files already in a bucket as known, so that the inbox does not report them.

Writes only the list of known objects, and changes no entry. You can stop it, continue with --after and repeat it, \
before the inbox runs or while it runs.

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
    after: Annotated[str, typer.Option(metavar="KEY", help="Continue after this key.")] = "",
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_seed(screen, at, _rules(rules), read_place(place), after=after)

    on_store(context, store, work)


def _rules(file: str | None) -> Rules:
    return rules_from(file or os.environ.get(INBOX, ""))
