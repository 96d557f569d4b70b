"""Makes the response of a query: one row, or none."""

from collections.abc import Sequence

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.probes.runner import RawResponse


def one_row(
    names: Sequence[str], rows: Sequence[Sequence[Json]], secrets: frozenset[str] = frozenset()
) -> RawResponse | ProbeUnknown:
    """Return the columns of the only row as fields; no row is the result `exists: false`."""
    if len(rows) > 1:
        return ProbeUnknown(kind="many-rows", reason="the query returns more than one row; aggregate, or use limit 1")
    row = dict(zip(names, rows[0], strict=False)) if rows else {}
    return RawResponse(value={"exists": bool(rows), **row}, secrets=secrets)
