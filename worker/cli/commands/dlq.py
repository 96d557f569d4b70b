"""`interlock dlq`: list, show, replay and drop dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from worker.cli.terminal.arguments import read_reason
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted, json_lines, shown_time
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess, show_failure
from worker.cli.terminal.worker_presence import warn_if_no_live_worker
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.core.model.exact_json import read_json
from worker.core.model.values import Json
from worker.operations.dead_letters import DeadLetterSelector, letter_record, record_letter_action, release_key
from worker.operations.operator_actions import OperatorAction, Requester
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.requests import DEFAULT_REASON
from worker.store.row_codec import decode_row
from worker.store.rows import to_json_map
from worker.store.table import Tables


async def run_list(screen: Screen, access: StoreAccess, which: DeadLetterSelector, *, as_json: bool) -> int:
    """List dead letters, oldest first in each source. Return exit code 1 if there are any to handle."""
    count = 0
    async with access.tables() as tables:
        async for letter in which.find(tables):
            count += 1
            if as_json:
                screen.record(letter_record(letter))
            else:
                screen.line(f"{letter.source} {letter.id}", style="bold")
                screen.line(f"  {shown_time(letter.at)}  {letter.reason}")
    if not as_json:
        advice = ": `show` one, fix its cause, then `replay` or `drop` it" if count else ""
        screen.line(f"{counted(count, 'dead letter')}{advice}")
    return Exit.PROBLEMS if count else Exit.DONE


async def run_show(screen: Screen, access: StoreAccess, which: DeadLetterSelector, *, as_json: bool) -> int:
    """Show a dead letter with its history, and the record, message or event that it holds."""
    async with access.tables() as tables:
        letter = await _first(which, tables)
        body = None if letter is None else await DeadLetters(tables).body(letter)
    if letter is None or body is None:
        return _say_gone(screen, which)
    content = to_json_map(decode_row(body))
    if as_json or not screen.out.is_terminal:
        screen.record({**letter_record(letter), "body": content})
    else:
        show_letter(screen, letter, content)
    return Exit.DONE


def show_letter(screen: Screen, letter: DeadLetter, content: Mapping[str, Json]) -> None:
    """Show a dead letter for people: one field below another, with JSON in a message unfolded."""
    screen.line(f"{letter.source} {letter.id}", style="bold")
    screen.table(
        [
            ("at", shown_time(letter.at)),
            ("reason", letter.reason),
            *([("key", letter.lane)] if letter.lane is not None else []),
            *(("tried" if number == 0 else "", said) for number, said in enumerate(letter.history)),
        ]
    )
    screen.line("what it holds", style="bold")
    screen.line(json_lines({name: _unfolded(value) for name, value in content.items()}))


def _unfolded(value: Json) -> Json:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        read = read_json(value)
        json_lines(read)
    except (ValueError, RecursionError):
        return value  # text that is not JSON, or is nested too deeply to read, stays text
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterActionSpec:
    """LetterActionSpec says which dead letters a person acts on, why, and who."""

    which: DeadLetterSelector
    reason: str
    by: Requester

    def action(self, name: str) -> OperatorAction:
        return OperatorAction(name=name, subject=str(self.which) or "all sources", reason=self.reason)


async def run_replay(screen: Screen, access: StoreAccess, spec: LetterActionSpec) -> int:
    """Request that workers replay dead letters in order; this command processes nothing itself."""
    which = spec.which
    async with access.tables() as tables:
        requests, count = Replays(tables, GROUP), 0
        async for letter in which.find(tables):
            if not count:
                action = spec.action("replay dead letters" if which.id is None else "replay dead letter")
                await record_letter_action(tables, spec.by, action, access.clock.now())
            await requests.ask(letter, access.clock.now())
            count += 1
        if not count and which.id is not None:
            return _say_gone(screen, which)
        screen.line(f"Replay requested for {counted(count, 'dead letter')}.")
        if count:
            screen.remark("    a worker replays within 30 seconds; `interlock dlq list` shows what failed again")
            await warn_if_no_live_worker(screen, tables, access.clock.now())
    return Exit.DONE


async def run_drop(screen: Screen, access: StoreAccess, spec: LetterActionSpec, consent: Consent) -> int:
    """Drop a dead letter and release the key that it parked, so that its next record is processed."""
    which = spec.which
    async with access.tables() as tables:
        letter = await _first(which, tables)
        if letter is None:
            return _say_gone(screen, which)
        if not consent.obtain(screen, f"Drop {which}?"):
            return Exit.DONE
        await record_letter_action(tables, spec.by, spec.action("drop dead letter"), access.clock.now())
        released = await release_key(tables, letter)
        await DeadLetters(tables).drop(letter)
    screen.line("dropped" + ("; its row is processed again from its next change" * released))
    return Exit.DONE


async def _first(which: DeadLetterSelector, tables: Tables) -> DeadLetter | None:
    return await anext(which.find(tables), None)


def _say_gone(screen: Screen, which: DeadLetterSelector) -> int:
    show_failure(screen, f"there is no dead letter {which}", "`interlock dlq list` shows those there are")
    return Exit.WRONG


dlq_app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""List, show, replay and drop dead letters.

A record that cannot be processed is kept here with its reason. For an hour, later changes to the same row are kept \
with it, so that none overtakes it. Fix the cause, then replay the dead letter (later changes to the same row replay \
in order), or drop it.""",
)

LIST_HELP = f"""List dead letters, oldest first (exit code 1 if there are any).

\b
Examples:
  interlock dlq list
  interlock dlq list feed.control
  interlock dlq list --json | jq .reason

{EXIT_CODES}"""

SHOW_HELP = f"""Show one dead letter: its reason, its history and its content.

\b
Examples:
  interlock dlq show feed.control 00000000000000000042@1772539200000
  interlock dlq show route.console 4f1c9a | jq .body.detail
  interlock dlq show queue.sensors 2f9d | jq .history

{EXIT_CODES}"""

REPLAY_HELP = f"""Request that workers process dead letters again, in order.

Safe while workers run. Dead letters of one row replay oldest first, whichever you name, and stop at the first that \
fails again. When none is left, the row's changes are processed as they arrive. A queue's message goes back to its \
queue, an event to its route.

\b
Examples:
  interlock dlq replay feed.control 00000000000000000042@1772539200000
  interlock dlq replay queue.alerts --reason "the queue's policy is fixed"
  interlock dlq replay --all

{EXIT_CODES}"""

DROP_HELP = f"""Drop a dead letter; its row is processed again from its next change.

\b
Examples:
  interlock dlq drop feed.control 00000000000000000042@1772539200000 --yes
  interlock dlq drop route.console 4f1c9a -y
  interlock dlq drop feed.joblog 00000000000000000007@1772539200000

{EXIT_CODES}"""

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Where it came from, as `list` says.")]
AnySource = Annotated[str | None, typer.Argument(metavar="SOURCE", help="Only those of one source.")]
Why = Annotated[str, typer.Option("--reason", help="Why; recorded.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as `list` says.")]
AnyId = Annotated[str | None, typer.Argument(metavar="ID", help="One dead letter, by its id; else all of the source.")]


@dlq_app.command("list", help=LIST_HELP)
def list_letters(
    context: typer.Context, source: AnySource = None, *, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    on_store(context, store, lambda screen, at: run_list(screen, at, DeadLetterSelector(source), as_json=as_json))


@dlq_app.command(help=SHOW_HELP)
def show(
    context: typer.Context, source: Source, letter: Id, *, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    on_store(
        context, store, lambda screen, at: run_show(screen, at, DeadLetterSelector(source, letter), as_json=as_json)
    )


@dlq_app.command(help=REPLAY_HELP)
def replay(
    context: typer.Context,
    source: AnySource = None,
    letter: AnyId = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of every source.")] = False,
    reason: Why = DEFAULT_REASON,
    as_who: AsWho = None,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        if everything == (source is not None):
            raise ConfigError("no dead letters were selected; name a SOURCE, or add --all")
        return await run_replay(screen, at, _spec(DeadLetterSelector(source, letter), reason, as_who))

    on_store(context, store, work)


@dlq_app.command(help=DROP_HELP)
def drop(
    context: typer.Context,
    source: Source,
    letter: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    reason: Why = DEFAULT_REASON,
    as_who: AsWho = None,
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        spec = _spec(DeadLetterSelector(source, letter), reason, as_who)
        return await run_drop(screen, at, spec, Consent.by_option(yes))

    on_store(context, store, work)


def _spec(which: DeadLetterSelector, reason: str, who: str | None) -> LetterActionSpec:
    return LetterActionSpec(which=which, reason=read_reason(reason), by=author_of(who))
