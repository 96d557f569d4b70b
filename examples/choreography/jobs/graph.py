"""The graph of the example: a SQLite file, written by upserts only, so that a repeat changes nothing."""

import sqlite3
from collections.abc import Iterable

CHUNK = 40


def chunks_of(bill: dict[str, str]) -> list[str]:
    words = bill["text"].split()
    return [" ".join(words[at : at + CHUNK]) for at in range(0, len(words), CHUNK)]


class Graph:
    """Bills, their topics and their chunks by key."""

    def __init__(self, path: str) -> None:
        self._file = sqlite3.connect(path, timeout=30)
        self._file.executescript(
            "CREATE TABLE IF NOT EXISTS bill (id TEXT PRIMARY KEY, hash TEXT, title TEXT, topic TEXT);"
            "CREATE TABLE IF NOT EXISTS chunk (bill TEXT, number INTEGER, text TEXT, PRIMARY KEY (bill, number));"
        )

    def upsert(self, bills: Iterable[tuple[dict[str, str], list[str]]]) -> None:
        with self._file:
            for bill, chunks in bills:
                row = (bill["id"], bill["hash"], bill["title"], bill["topic"])
                self._file.execute("INSERT OR REPLACE INTO bill VALUES (?, ?, ?, ?)", row)
                self._file.execute("DELETE FROM chunk WHERE bill = ?", (bill["id"],))
                parts = [(bill["id"], number, text) for number, text in enumerate(chunks)]
                self._file.executemany("INSERT INTO chunk VALUES (?, ?, ?)", parts)

    def rows(self) -> list[tuple[object, ...]]:
        bills = self._file.execute("SELECT * FROM bill ORDER BY id").fetchall()
        return [*bills, *self._file.execute("SELECT * FROM chunk ORDER BY bill, number").fetchall()]

    def close(self) -> None:
        self._file.close()
