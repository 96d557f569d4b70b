"""The scripts that run on the server, each atomic there. Their texts are in `files`."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

from worker.store.table import INDEXES, TableName

NAMES: Final = ("commit", "query", "changes", "newest", "trim", "sweep")


@dataclass(frozen=True, slots=True)
class Script:
    """Holds a script and the hash by which a server knows it once it is loaded."""

    name: str
    text: str
    digest: str


@cache
def script(name: str) -> Script:
    folder = files("worker.store.redis") / "files"
    own, common = ((folder / f"{each}.lua").read_text() for each in (name, "common"))
    text = f"{_indexes()}\n{common}\n{own}"
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def all_scripts() -> list[Script]:
    return [script(name) for name in NAMES]


def _indexes() -> str:
    """Return the indexes as Lua knows them, so that they are described in one place only."""
    of_table = {
        table: ", ".join(
            f'{{"{index.name}", "{index.partition}", "{index.sort}", {str(index.sort_is_number).lower()}}}'
            for index in INDEXES
            if index.table is table
        )
        for table in TableName
    }
    return "local INDEXES = {" + ", ".join(f"{table} = {{{found}}}" for table, found in of_table.items()) + "}"
