"""`interlock deadletters`: what could not be handled or delivered, and letting go of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.app_session import DEAD_LETTER_SOURCES, GROUP
from worker.cli.consent import Consent
from worker.cli.console import Screen, counted, json_text
from worker.cli.onstore import Exit, StoreAccess
from worker.core.errors import ConfigError
from worker.core.values import Json
from worker.store.attributes import instant_text
from worker.store.deadletters import DeadLetter, DeadLetters
from worker.store.parked import ParkedKeys
from worker.store.plain import plain_map
from worker.store.rowcodec import decode_row
from worker.store.table import Tables

LISTED_MAX = 1000


@dataclass(frozen=True, slots=True)
class LetterName:
    source: str
    id: str

    def __post_init__(self) -> None:
        if self.source not in DEAD_LETTER_SOURCES:
            raise ConfigError(f"there is no source {self.source!r}; known are {', '.join(DEAD_LETTER_SOURCES)}")


async def run_list(screen: Screen, access: StoreAccess, *, as_json: bool) -> int:
    """List all letters, oldest first within their source. Exit code 1 if there are any: somebody must look."""
    async with access.tables() as tables:
        letters = [letter for source in DEAD_LETTER_SOURCES for letter in await _letters(tables, source)]
    for letter in letters:
        if as_json:
            screen.record(_record(letter))
        else:
            screen.line(f"{letter.source} {letter.id}", style="bold")
            screen.line(f"  {instant_text(letter.at)}  {letter.reason}")
    if not as_json:
        screen.line(
            f"{counted(len(letters), 'dead letter')}" + (": `show` one, mend its cause, `drop` it" * bool(letters))
        )
    return Exit.PROBLEMS if letters else Exit.DONE


async def run_show(screen: Screen, access: StoreAccess, name: LetterName) -> int:
    """Show a letter with what was tried, and the record or event it holds."""
    async with access.tables() as tables:
        letter = await _find(tables, name)
        body = None if letter is None else await DeadLetters(tables).body(letter)
    if letter is None or body is None:
        return _say_gone(screen, name)
    screen.document(json_text({**_record(letter), "body": plain_map(decode_row(body))}))
    return Exit.DONE


async def run_drop(screen: Screen, access: StoreAccess, name: LetterName, consent: Consent) -> int:
    """Forget a letter, and release the key that was parked because of it: its next record is handled again."""
    async with access.tables() as tables:
        letter = await _find(tables, name)
        if letter is None:
            return _say_gone(screen, name)
        if not consent.obtain(screen, f"Drop {name.source} {name.id}?"):
            return Exit.DONE
        released = await _release(tables, letter)
        await DeadLetters(tables).drop(letter)
    screen.line("dropped" + (", and its key is handled again from its next change on" * released))
    return Exit.DONE


async def _letters(tables: Tables, source: str) -> list[DeadLetter]:
    return await DeadLetters(tables).list(source, LISTED_MAX)


async def _find(tables: Tables, name: LetterName) -> DeadLetter | None:
    return next((letter for letter in await _letters(tables, name.source) if letter.id == name.id), None)


async def _release(tables: Tables, letter: DeadLetter) -> bool:
    keys = ParkedKeys(tables, GROUP)
    parked = [key for key in await keys.list(letter.source) if key.since == letter.id]
    for key in parked:
        await keys.release(letter.source, key.key_hash)
    return bool(parked)


def _say_gone(screen: Screen, name: LetterName) -> int:
    screen.remark(f"there is no dead letter {name.source} {name.id}", style="red")
    screen.remark("    `interlock deadletters list` shows those there are")
    return Exit.PROBLEMS


def _record(letter: DeadLetter) -> Mapping[str, Json]:
    return {
        "type": "deadletter",
        "source": letter.source,
        "id": letter.id,
        "at": instant_text(letter.at),
        "reason": letter.reason,
        "history": list(letter.history),
    }
