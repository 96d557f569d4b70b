"""Says which role's workers share the leases of a stream."""

from collections.abc import Mapping
from typing import Final

from worker.config.roles import Role
from worker.store.table import TableName

# The role that handles the changes of each table.
TABLE_ROLES: Final = {TableName.CONTROL: Role.ENGINE, TableName.JOBLOG: Role.ENGINE, TableName.EVENTS: Role.RELAY}

_OF_TABLES: Final = frozenset({"feed", "stream", "kinesis"})  # kinds of streams that carry a table's changes
_BY_TABLE: Final[Mapping[str, str]] = {table.value: role for table, role in TABLE_ROLES.items()}
_OF_ITSELF: Final[Mapping[str, str]] = {
    "active": Role.ENGINE,
    "cron": Role.SCHEDULER,
    "scheduler": Role.SCHEDULER,
}


def role_of(stream: str) -> str:
    """Return the role whose workers share the leases of a stream; "" if all workers do."""
    kind, _, rest = stream.removeprefix("shards.").partition(".")
    if kind in _OF_TABLES:
        return _BY_TABLE.get(rest, "")
    return rest if kind == "replays" else _OF_ITSELF.get(kind, "")
