"""What a person may do to a store as a whole: make it, check it, bring it up to date, measure it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """One thing that was looked at. `remedy` says what to do; it is empty exactly if all is well."""

    subject: str
    finding: str
    remedy: str = ""

    @property
    def is_sound(self) -> bool:
        return not self.remedy


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a store; `note` says how far it can be trusted, or how a person would say it."""

    name: str
    value: int | str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What was done to a file. Both versions are equal if there was nothing to do."""

    before: int
    after: int
    backup: Path | None = None


class StoreAdmin(Protocol):
    """Each method opens and closes what it needs. All may raise `ConfigError` and `RetryLater`."""

    @property
    def place(self) -> str:
        """The store, as a person would name it."""
        ...

    async def require_ready(self) -> None:
        """Raise `ConfigError` if the store must be made or migrated before it is used, saying how."""
        ...

    async def require_writable(self) -> None:
        """Raise `RetryLater` if the store answers reads and takes no writes, such as one that is locked or full."""
        ...

    async def init(self, *, may_create: bool) -> bool:
        """Make what is missing of the store; say whether anything was. `may_create` allows what costs money."""
        ...

    async def check(self) -> Sequence[StoreFinding]:
        """Look at everything the store needs to work, changing nothing."""
        ...

    async def migrate(self, *, backup: bool) -> Migration | None:
        """Bring the store to the present version, a copy of it aside first; None if this kind has no versions."""
        ...

    async def stats(self) -> Sequence[Figure]: ...
