"""Whose work a lease is: workers with different duties share only the leases of their own."""

from collections.abc import Mapping
from typing import Final

from worker.config.settings import Duty
from worker.store.table import TableName

# Whose work the changes of a table are.
DUTIES: Final = {TableName.CONTROL: Duty.ENGINE, TableName.JOBLOG: Duty.ENGINE, TableName.EVENTS: Duty.RELAY}

_OF_TABLES: Final = frozenset({"feed", "stream", "kinesis"})  # what tells of a table's changes
_BY_TABLE: Final[Mapping[str, str]] = {table.value: duty for table, duty in DUTIES.items()}
_OF_ITSELF: Final[Mapping[str, str]] = {"active": Duty.ENGINE, "scheduler": Duty.SCHEDULER}


def duty_of(stream: str) -> str:
    """The duty whose workers share the leases of a stream; "" if all do."""
    kind, _, rest = stream.removeprefix("shards.").partition(".")
    if kind in _OF_TABLES:
        return _BY_TABLE.get(rest, "")
    return rest if kind == "replays" else _OF_ITSELF.get(kind, "")
