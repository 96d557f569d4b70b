"""Reading as much of a partition as was asked for, however the backend cuts it into pages."""

from worker.store.table import Between, Index, Prefix, Row, TableName, Tables


async def first_rows(
    tables: Tables,
    table: TableName,
    pk: str,
    *,
    limit: int,
    sk: Prefix | Between | None = None,
    index: Index | None = None,
    reverse: bool = False,
) -> list[Row]:
    """Read the first rows in sort order (the last ones first, if reversed), at most `limit`."""
    rows: list[Row] = []
    cursor: str | None = None
    while len(rows) < limit:
        page = await tables.query(
            table, pk, sk=sk, index=index, reverse=reverse, limit=limit - len(rows), cursor=cursor
        )
        rows.extend(page.rows)
        cursor = page.cursor
        if cursor is None:
            break
    return rows
