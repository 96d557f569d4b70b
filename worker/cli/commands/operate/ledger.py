"""`interlock ledger`: which records of a job's input changed, and that they are processed."""

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final, TextIO, cast

import typer

from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.truncation import RAISE_LIMIT, Truncation, report
from worker.core.errors import ConfigError, Rejected
from worker.core.ledger.hold import LedgerHolder, LedgerRecord, RecordChanges
from worker.core.time.timestamps import format_utc
from worker.operations.operator_actions import Requester
from worker.operations.record_ledgers import RecordLedgers, check_holder, check_record, holder_in
from worker.runtime.json_bytes import from_json

CHUNK: Final = 2_000  # lines that are in memory at a time
LINE_CHARS_MAX: Final = 1024 * 1024
LISTED_MAX: Final = 100
PAGE: Final = 500

Lines = list[tuple[LedgerRecord, str]]


def read_records(source: TextIO) -> Iterator[Lines]:
    """Yield the records of NDJSON lines with their text, chunk by chunk. Raises `Rejected` with the line."""
    numbered = enumerate(iter(lambda: source.readline(LINE_CHARS_MAX + 1), ""), start=1)
    while chunk := list(islice(numbered, CHUNK)):
        yield [(_record(line, number), line) for number, line in chunk if line.strip()]


def _record(line: str, number: int) -> LedgerRecord:
    where = f"line {number}"
    if len(line) > LINE_CHARS_MAX:
        raise Rejected(f"{where} has more than {LINE_CHARS_MAX:,} characters; keep large content elsewhere")
    try:
        said: object = from_json(line)
    except ValueError as error:
        raise Rejected(f"{where} is not JSON ({error}); write one record on each line") from error
    if not isinstance(said, dict):
        raise Rejected(f'{where} is no JSON object; write {{"id": "…", "hash": "…"}}')
    members = cast("dict[str, object]", said)
    return check_record(LedgerRecord(_text(members.get("id")), _text(members.get("hash"))), where)


def _text(value: object) -> str:
    """Return a text or number as text; "" for anything else, which no record may have."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


async def run_diff(screen: Screen, access: StoreAccess, name: str, by: LedgerHolder) -> int:
    """Write the lines of new and changed records to standard output, and counts to standard error."""
    total = RecordChanges()
    async with access.tables() as tables:
        ledgers = RecordLedgers(tables, access.clock)
        await ledgers.take(name, by)
        for lines in read_records(sys.stdin):
            found = await ledgers.diff(name, [record for record, _ in lines])
            changed = (line for (_, line), is_changed in zip(lines, found.is_changed, strict=True) if is_changed)
            sys.stdout.write("".join(line if line.endswith("\n") else f"{line}\n" for line in changed))
            total = total.plus(found.counts)
    sys.stdout.flush()
    screen.remark(f"{total.seen:,} seen: {total.new:,} new, {total.changed:,} changed, {total.unchanged:,} unchanged")
    return Exit.DONE


async def run_save(screen: Screen, access: StoreAccess, name: str, by: LedgerHolder | None) -> int:
    """Save the records of standard input; without a run, only those that are not in the ledger."""
    total = RecordChanges()
    async with access.tables() as tables:
        ledgers = RecordLedgers(tables, access.clock)
        for lines in read_records(sys.stdin):
            records = [record for record, _ in lines]
            total = total.plus(await (ledgers.seed(name, records) if by is None else ledgers.commit(name, by, records)))
    saved = total.new + total.changed
    screen.remark(f"{counted(saved, 'record')} saved in {name}, {total.unchanged:,} known already")
    return Exit.DONE


async def run_show(
    screen: Screen, access: StoreAccess, name: str, record: str | None, *, limit: int, as_json: bool
) -> int:
    """List records in the order of their place in the ledger, or show one."""
    async with access.tables() as tables:
        ledgers = RecordLedgers(tables, access.clock)
        if record is not None:
            found = await ledgers.get(name, record)
            if found is None:
                raise Rejected(f"the ledger {name} has no record {record!r}")
            records, is_cut, total = [found], False, 1
        else:
            records, after = list[LedgerRecord](), ""
            while len(records) <= limit:
                page = await ledgers.page(name, after, min(PAGE, limit + 1 - len(records)))
                if not page.records:
                    break
                records, after = [*records, *page.records], page.next
            records, is_cut = records[:limit], len(records) > limit
        total = (await ledgers.head(name)).records if is_cut else len(records)
    for each in records:
        if as_json:
            screen.record({"type": "ledger-record", "id": each.id, "hash": each.hash})
        else:
            screen.line(f"{each.id}  {each.hash}")
    if is_cut:
        # The count is read after the records, which a run may add to meanwhile.
        cut = Truncation(what="records", shown=limit, total=max(total, limit + 1), is_exact=False, hint=RAISE_LIMIT)
        report(screen, [cut], as_json=as_json)
    return Exit.DONE


async def run_stats(screen: Screen, access: StoreAccess, name: str, *, as_json: bool) -> int:
    async with access.tables() as tables:
        head = await RecordLedgers(tables, access.clock).head(name)
    since, saved = (None if at is None else format_utc(at) for at in (head.held_since, head.saved_at))
    if as_json:
        holder = None if head.holder is None else {"run": head.holder.run, "attempt": head.holder.attempt}
        record = {"name": name, "records": head.records, "heldBy": holder, "heldSince": since, "savedAt": saved}
        screen.record({"type": "ledger", **record})
        return Exit.DONE
    screen.line(f"{name}: {counted(head.records, 'record')}")
    if head.holder is not None:
        screen.line(f"held by {head.holder} since {since}; last saved {saved or 'never'}")
    return Exit.DONE


async def run_clear(
    screen: Screen, access: StoreAccess, name: str, reason: str, *, by: Requester, consent: Consent
) -> int:
    async with access.tables() as tables:
        ledgers = RecordLedgers(tables, access.clock)
        head = await ledgers.head(name)
        records = counted(head.records, "record")
        question = f"Delete {records} of the ledger {name}? Every record will be processed again."
        if not consent.obtain(screen, question):
            screen.remark("nothing was deleted")
            return Exit.DONE
        deleted = await ledgers.clear(name, reason, by)
    screen.line(f"{counted(deleted, 'record')} of {name} deleted")
    return Exit.DONE


def holder(run: str | None, attempt: int | None) -> LedgerHolder:
    """Return the run that asks: as given, or the command job that this process is part of."""
    if run is not None:
        return check_holder(run, attempt or 1)
    found = holder_in(lambda name: os.environ.get(name, ""))
    if found is None:
        raise ConfigError("which run asks is not known outside of a command job; name it with --run")
    return found


ledger_app = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Find the records that changed since a job last processed them, and save that it did.",
)

DIFF_HELP = f"""Print the records of standard input that are new or changed.

Each line is a JSON object with `id` and `hash`; new and changed lines are printed as they are, and counts go to \
standard error. The run takes the ledger: from then on, an older attempt cannot save.

\b
Examples:
  interlock ledger diff bills < records.ndjson > changed.ndjson
  interlock ledger diff bills --run by-hand < records.ndjson

{EXIT_CODES}"""

COMMIT_HELP = f"""Save the records of standard input as processed.

Call it last, or every 100 records as a checkpoint. A repeat changes nothing. If another run or a newer attempt has \
taken the ledger, nothing is saved and the exit code is 1.

\b
Examples:
  interlock ledger commit bills < changed.ndjson
  interlock ledger commit bills --run by-hand < changed.ndjson

{EXIT_CODES}"""

SEED_HELP = f"""Save the records of standard input without processing them, before the first run.

Records that are in the ledger stay as they are. You can stop it and repeat it.

\b
Examples:
  interlock ledger seed bills < records.ndjson

{EXIT_CODES}"""

SHOW_HELP = f"""List the records of a ledger, or show one by its id.

\b
Examples:
  interlock ledger show bills
  interlock ledger show bills hr-1024
  interlock ledger show bills --limit 100000 --json

{EXIT_CODES}"""

STATS_HELP = f"""Show how many records a ledger has, and which run holds it.

\b
Examples:
  interlock ledger stats bills
  interlock ledger stats bills --json

{EXIT_CODES}"""

CLEAR_HELP = f"""Delete all records of a ledger, so that every record is processed again.

The run that holds the ledger can save nothing any more. Stopped in between, it can be repeated.

\b
Examples:
  interlock ledger clear bills --reason "the model changed" --yes

{EXIT_CODES}"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The ledger.")]
RunName = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="The run that asks.", show_default="the command job's run")
]
Attempt = Annotated[
    int | None, typer.Option("--attempt", metavar="N", min=1, help="Its attempt, with --run.", show_default="1")
]


@ledger_app.command(help=DIFF_HELP)
def diff(
    context: typer.Context, name: Name, *, run: RunName = None, attempt: Attempt = None, store: StoreUrl = None
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_diff(screen, at, name, holder(run, attempt))

    on_store(context, store, work)


@ledger_app.command(help=COMMIT_HELP)
def commit(
    context: typer.Context, name: Name, *, run: RunName = None, attempt: Attempt = None, store: StoreUrl = None
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_save(screen, at, name, holder(run, attempt))

    on_store(context, store, work)


@ledger_app.command(help=SEED_HELP)
def seed(context: typer.Context, name: Name, *, store: StoreUrl = None) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_save(screen, at, name, None)

    on_store(context, store, work)


@ledger_app.command(help=SHOW_HELP)
def show(
    context: typer.Context,
    name: Name,
    record: Annotated[str | None, typer.Argument(metavar="ID", help="One record.", show_default=False)] = None,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="List at most this many.")] = LISTED_MAX,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_show(screen, at, name, record, limit=limit, as_json=as_json)

    on_store(context, store, work)


@ledger_app.command(help=STATS_HELP)
def stats(context: typer.Context, name: Name, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_stats(screen, at, name, as_json=as_json)

    on_store(context, store, work)


@ledger_app.command(help=CLEAR_HELP)
def clear(
    context: typer.Context,
    name: Name,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the events keep it.")],
    by: AsWho = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        consent = Consent.by_option(yes)
        return await run_clear(screen, at, name, reason, by=author_of(by), consent=consent)

    on_store(context, store, work)
