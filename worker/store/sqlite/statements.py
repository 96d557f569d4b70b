"""Every statement that the SQLite backend runs on rows; a test checks SQLite's plan for each.

Bounds are half open: `low` is included, `high` is not. A bound after text T is `T + "\\0"`, because nothing sorts
between the two. "No upper bound" is an empty blob, because SQLite sorts every blob after every text.
"""

from typing import Final, NewType

Statement = NewType("Statement", str)

STATEMENTS: Final[list[Statement]] = []


def _statement(sql: str) -> Statement:
    STATEMENTS.append(Statement(sql))
    return STATEMENTS[-1]


# --- rows -------------------------------------------------------------------------------------------------------------

ROW_GET = _statement("SELECT body FROM row WHERE tbl = ? AND pk = ? AND sk = ?")
ROW_FIND = _statement("SELECT id, body FROM row WHERE tbl = ? AND pk = ? AND sk = ?")
ROW_INSERT = _statement("INSERT INTO row (tbl, pk, sk, body, ttl) VALUES (?, ?, ?, ?, ?)")
ROW_REPLACE = _statement("UPDATE row SET body = ?, ttl = ? WHERE id = ?")
ROW_DELETE = _statement("DELETE FROM row WHERE id = ?")
ROWS_FORWARD = _statement(
    "SELECT sk, body FROM row WHERE tbl = ? AND pk = ? AND sk >= ? AND sk < ? ORDER BY sk LIMIT ?"
)
ROWS_BACKWARD = _statement(
    "SELECT sk, body FROM row WHERE tbl = ? AND pk = ? AND sk >= ? AND sk < ? ORDER BY sk DESC LIMIT ?"
)
ROWS_EXPIRED = _statement("SELECT id, tbl, pk, sk, body FROM row WHERE ttl <= ? ORDER BY ttl LIMIT ?")
ROWS_AFTER = _statement("SELECT pk, sk, body FROM row WHERE tbl = ? AND (pk, sk) > (?, ?) ORDER BY pk, sk LIMIT ?")
# As the bytes they are, because a damaged row may hold anything.
ROWS_RAW_AFTER = _statement(
    "SELECT id, CAST(tbl AS BLOB), CAST(pk AS BLOB), CAST(sk AS BLOB), typeof(body), CAST(body AS BLOB) FROM row "
    "WHERE id > ? ORDER BY id LIMIT ?"
)
ROWS_COUNT = _statement("SELECT count(*) FROM row WHERE tbl = ?")
ROWS_EXPIRED_COUNT = _statement("SELECT count(*) FROM row WHERE ttl <= ?")

# --- index entries ----------------------------------------------------------------------------------------------------

# Replaces: an entry that was left behind when its row was deleted by hand must not refuse the row for ever.
ENTRY_INSERT = _statement(
    "INSERT OR REPLACE INTO index_entry (name, part, sort, pk, sk, row) VALUES (?, ?, ?, ?, ?, ?)"
)
ENTRY_DELETE = _statement("DELETE FROM index_entry WHERE name = ? AND part = ? AND sort = ? AND pk = ? AND sk = ?")
# The key is compared because the id of a row that was deleted by hand is used again.
_ENTRIES = (
    "SELECT e.sort, e.pk, e.sk, r.body FROM index_entry e JOIN row r ON r.id = e.row AND r.pk = e.pk AND r.sk = e.sk "
    "WHERE e.name = ? AND e.part = ? AND (e.sort, e.pk, e.sk) >= (?, ?, ?) AND (e.sort, e.pk, e.sk) < (?, ?, ?) "
)
ENTRIES_FORWARD = _statement(_ENTRIES + "ORDER BY e.sort, e.pk, e.sk LIMIT ?")
ENTRIES_BACKWARD = _statement(_ENTRIES + "ORDER BY e.sort DESC, e.pk DESC, e.sk DESC LIMIT ?")
ENTRIES_COUNT = _statement("SELECT count(*) FROM index_entry WHERE name = ? AND part >= ? AND part < ?")

# --- the change feed --------------------------------------------------------------------------------------------------

CHANGE_INSERT = _statement("INSERT INTO change (tbl, pk, sk, kind, image, at_us) VALUES (?, ?, ?, ?, ?, ?)")
CHANGES_AFTER = _statement(
    "SELECT position, pk, sk, kind, image, at_us FROM change WHERE tbl = ? AND position > ? ORDER BY position LIMIT ?"
)
CHANGE_OLDEST = _statement("SELECT at_us FROM change WHERE position > ? ORDER BY position LIMIT 1")
CHANGE_LAST = _statement("SELECT max(position) FROM change")
# The first change of a range that is too young to be deleted.
CHANGE_FIRST_YOUNG = _statement("SELECT min(position) FROM change WHERE position > ? AND position <= ? AND at_us > ?")
CHANGES_TRIM = _statement("DELETE FROM change WHERE position <= ?")
TRIMMED_GET = _statement("SELECT value FROM meta WHERE name = 'trimmed'")
TRIMMED_SET = _statement("UPDATE meta SET value = ? WHERE name = 'trimmed'")
