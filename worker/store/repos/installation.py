"""Installation time: when Interlock first started on its tables. Older rows are of an earlier system."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.time.skew import was_set_back
from worker.runtime.clock import Clock
from worker.store.rows import instant, instant_text
from worker.store.table import Absent, Key, Put, StaleWrite, TableName, Tables

_SK = "INSTALLATION"


async def installed_at(tables: Tables, group: str, now: datetime) -> datetime:
    """Return the time of the first start, and record `now` if this is it. It never changes again."""
    key = Key(keys.group_pk(group), _SK)
    try:
        first = {"PK": key.pk, "SK": key.sk, "beganAt": instant_text(now)}
        await tables.commit(Put(TableName.CONTROL, first, Absent()))
    except StaleWrite as error:
        if error.row is None:
            raise
        return instant(error.row, "beganAt")
    return now


async def began_at(tables: Tables, group: str) -> datetime | None:
    """Return when the first start was; None if there was none yet."""
    row = await tables.get(TableName.CONTROL, Key(keys.group_pk(group), _SK))
    return None if row is None else instant(row, "beganAt")


@dataclass(frozen=True, slots=True)
class InstallTime:
    """Holds the time of the first start: older rows cause no late data, drift or rerun."""

    began_at: datetime
    clock: Clock

    def is_news(self, at: datetime) -> bool:
        """Return whether a row was written since the first start.

        If this worker's clock was set back to before the first start, every row counts as new.
        """
        return at >= self.began_at or was_set_back(self.began_at, self.clock.now())
