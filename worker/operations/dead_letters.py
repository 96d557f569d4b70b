"""Finds dead letters, releases the key that one parked, and records who replays or drops one."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.core.model.values import Json
from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.ids import random_id
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.events import event_write
from worker.store.rows import instant_text
from worker.store.table import Tables


@dataclass(frozen=True, slots=True)
class DeadLetterSelector:
    """DeadLetterSelector selects one dead letter, all of a source, or all."""

    source: str | None = None
    id: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.source, self.id) if part is not None)

    async def find(self, tables: Tables) -> AsyncIterator[DeadLetter]:
        """Yield every selected dead letter.

        Raises `ConfigError` for a source that never had a dead letter, and names the known sources.
        """
        letters = DeadLetters(tables)
        sources = await letters.sources()
        if self.source is not None and self.source not in sources:
            known = f"known are {', '.join(sources)}" if sources else "there are none at all"
            raise ConfigError(f"no dead letter ever came from {self.source!r}; {known}")
        for source in sources if self.source is None else [self.source]:
            async for letter in letters.every(source):
                if self.id in {None, letter.id}:
                    yield letter


async def release_key(tables: Tables, letter: DeadLetter) -> bool:
    """Release the key that a dead letter parked; False if it parked none.

    The next record of the key is then processed.
    """
    keys = ParkedKeys(tables, GROUP)
    parked = None if letter.lane is None else await keys.get(letter.source, letter.lane)
    if parked is None or parked.since != letter.id:
        return False
    await keys.release(letter.source, parked.key_hash)
    return True


async def record_letter_action(
    tables: Tables, by: Requester, action: OperatorAction, now: datetime, event_id: str | None = None
) -> None:
    """Record who replays or drops dead letters, and why. `event_id` is the id of the event, if it has one.

    Call it before the action: if the process dies in between, the event names a request that was not served, but
    no dead letter goes without a name.
    """
    await tables.commit(event_write(action_event(by, action, event_id=event_id or random_id(), at=now)))


def letter_record(letter: DeadLetter) -> Mapping[str, Json]:
    return {
        "type": "deadletter",
        "source": letter.source,
        "id": letter.id,
        "at": instant_text(letter.at),
        "reason": letter.reason,
        "history": list(letter.history),
        "key": letter.lane,
    }
