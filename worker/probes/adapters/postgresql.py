"""Asks PostgreSQL for one row, in a transaction that can only read.

The query is the text of a server-side cursor, which takes exactly one statement that returns rows, and of which only
two rows are ever fetched. The address is resolved and checked like that of an HTTP job, and libpq connects to exactly
that address, while TLS still checks the name.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339
from worker.jobs.messages import tidy
from worker.jobs.secrets import Filling, SecretSource
from worker.net.address_policy import AddressRefused
from worker.probes.adapters.rows import one_row
from worker.probes.runner import RawResponse
from worker.probes.specs import SqlProbeConfig

if TYPE_CHECKING:
    from psycopg import AsyncConnection

PORT: Final = 5432
ADDRESSES_MAX: Final = 4
_SCHEMES: Final = ("postgresql://", "postgres://")
_FORM: Final = "it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
# Others name files, other hosts or settings of the session.
_PARAMETERS: Final = frozenset(
    {"user", "password", "host", "port", "dbname", "sslmode", "sslrootcert", "channel_binding", "target_session_attrs"}
)
# What a server that answers says about itself, and not about the request.
_BUSY: Final = ("starting up", "shutting down", "too many", "recovery mode", "remaining connection slots")


class HostAddresses(Protocol):
    async def addresses(self, host: str, port: int, /) -> list[str]:
        """Return the addresses that a connection to a host may use. Raises `AddressRefused`, and `OSError`."""
        ...


class PostgresqlQueries:
    """Opens a connection for each query: probes are rare, and an idle one would hold a slot of the server."""

    def __init__(self, hosts: HostAddresses, secrets: SecretSource) -> None:
        self._hosts, self._secrets = hosts, secrets

    async def ask(self, config: SqlProbeConfig, limit: timedelta) -> RawResponse | ProbeUnknown:
        if find_spec("psycopg") is None:
            raise Rejected("the library for PostgreSQL is not installed; install interlock[postgresql]")
        import psycopg  # noqa: PLC0415  an extra: only such a probe needs it

        filling = Filling(self._secrets)
        place = _place(await filling.text(config.url), filling)
        try:
            addresses = await self._hosts.addresses(place["host"], int(place["port"]))
        except AddressRefused as problem:
            raise Rejected(str(problem)) from problem
        except OSError as problem:
            reason = tidy(f"the address of {place['host']} is not found: {problem}", filling.secrets)
            return ProbeUnknown(kind="no-address", reason=reason, is_down=True)
        try:
            connection = await psycopg.AsyncConnection.connect(**_pinned(place, addresses, limit))
        except psycopg.Error as problem:
            said = tidy(f"no connection to PostgreSQL: {problem}", filling.secrets)
            return ProbeUnknown(kind="no-connection", reason=said, is_down=_is_down(said))
        try:
            names, rows = await _query(connection, config, limit)
        except psycopg.errors.QueryCanceled:
            return ProbeUnknown(kind="timeout", reason=f"no row within {format_duration(limit)}", is_down=True)
        except psycopg.Error as problem:
            said = tidy(f"PostgreSQL: {problem}", filling.secrets)
            return ProbeUnknown(kind="query-failed", reason=said, is_down=connection.broken)
        finally:
            await connection.close()
        return one_row(names, rows, filling.secrets)


def _place(url: str, filling: Filling) -> dict[str, str]:
    """Return the parts of a URL. Raises `Rejected`, never with a part of the URL: it holds the password."""
    from psycopg import ProgrammingError  # noqa: PLC0415  as above
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  as above

    if not url.startswith(_SCHEMES):
        raise Rejected(f"the url of the probe is not one of PostgreSQL; {_FORM}")
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        raise Rejected(f"the url of the probe cannot be read; {_FORM}") from None
    if unknown := sorted(parts.keys() - _PARAMETERS):
        raise Rejected(f"the url of the probe has parameters that are not supported: {', '.join(unknown)}")
    for name in ("user", "host", "dbname"):
        if not parts.get(name):
            raise Rejected(f"the url of the probe names no {name}; {_FORM}")
    if "," in parts["host"] or parts["host"].startswith(("/", "@")):
        raise Rejected(f"the url of the probe must name one host on the network; {_FORM}")
    if not parts.setdefault("port", str(PORT)).isdecimal():
        raise Rejected(f"the url of the probe has no valid port; {_FORM}")
    if "password" in parts:
        filling.hide(parts["password"])
    return parts


def _pinned(place: Mapping[str, str], addresses: Sequence[str], limit: timedelta) -> dict[str, Any]:
    """Return what to connect with: libpq tries the checked addresses in turn, and resolves nothing itself."""
    tried = [*dict.fromkeys(addresses)][:ADDRESSES_MAX]
    return {
        **place,
        "host": ",".join([place["host"]] * len(tried)),
        "hostaddr": ",".join(tried),
        "port": ",".join([place["port"]] * len(tried)),
        "passfile": os.devnull,  # credentials come from the configuration alone
        "gssencmode": "disable",
        "application_name": "interlock",
        "connect_timeout": max(2, ceil(limit.total_seconds())),
    }


def _is_down(said: str) -> bool:
    """Return whether the server itself is the problem: it did not answer, or is not ready."""
    return "FATAL" not in said or any(words in said for words in _BUSY)


async def _query(
    connection: "AsyncConnection", config: SqlProbeConfig, limit: timedelta
) -> tuple[list[str], list[list[Json]]]:
    from psycopg import AsyncRawServerCursor  # noqa: PLC0415  as above

    await connection.set_read_only(True)
    limit_ms = str(max(1, int(limit.total_seconds() * 1000)))
    await connection.execute("select set_config('statement_timeout', %s, true)", [limit_ms])
    async with AsyncRawServerCursor(connection, "interlock_probe") as cursor:
        await cursor.execute(config.query.encode(), config.parameters or None)
        names = [column.name for column in cursor.description or ()]
        found = cast("Sequence[Sequence[object]]", await cursor.fetchmany(2))
    return names, [[_plain(cell) for cell in row] for row in found]


def _plain(cell: object) -> Json:
    match cell:
        case None | bool() | int() | float() | Decimal() | str():
            return cell
        case datetime():
            return format_rfc3339(cell) if cell.tzinfo else cell.isoformat()
        case date() | time():
            return cell.isoformat()
        case bytes():
            return cell.hex()
        case Mapping():
            return {str(name): _plain(member) for name, member in cast("Mapping[object, object]", cell).items()}
        case list() | tuple():
            return [_plain(member) for member in cast("Sequence[object]", cell)]
        case _:
            return str(cell)
