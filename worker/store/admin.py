"""Store administration: create, check, migrate and measure a store as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Holds the result of one check. `remedy` says what to do; it is empty exactly if the check passed."""

    subject: str
    finding: str
    remedy: str = ""

    @property
    def is_sound(self) -> bool:
        return not self.remedy


@dataclass(frozen=True, slots=True)
class Figure:
    """Holds one number about a store; `note` says how exact it is, or repeats it in readable form."""

    name: str
    value: int | str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Describes what was done to a file. Both versions are equal if there was nothing to do."""

    before: int
    after: int
    backup: Path | None = None


class StoreAdmin(Protocol):
    """Administers one store. Each method opens and closes what it needs.

    All methods may raise `ConfigError` and `RetryLater`.
    """

    @property
    def place(self) -> str:
        """Return the store's name for people."""
        ...

    async def require_ready(self) -> None:
        """Raise `ConfigError`, with the remedy, if the store must be created or migrated before use."""
        ...

    async def require_writable(self) -> None:
        """Raise `RetryLater` if the store answers reads but accepts no writes: it is locked or full, say."""
        ...

    async def init(self, *, may_create: bool) -> bool:
        """Create what is missing of the store; return whether anything was. `may_create` allows costs."""
        ...

    async def check(self) -> Sequence[StoreFinding]:
        """Check everything the store needs to work, and change nothing."""
        ...

    async def migrate(self, *, backup: bool) -> Migration | None:
        """Migrate the store to the current version; None if this kind of store has no versions.

        With `backup`, it copies the store first.
        """
        ...

    async def stats(self) -> Sequence[Figure]: ...
