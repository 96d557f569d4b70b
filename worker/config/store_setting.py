"""Reads the one setting that every command needs: which store to use.

Commands read it alone, because all settings together take longer to load than most commands take.
"""

from collections.abc import Mapping
from typing import Final

from worker.store.url import locate

STORE: Final = "INTERLOCK_STORE"
DEFAULT_STORE: Final = "sqlite:///interlock.db"
GROUP: Final = "interlock"  # all workers of a store are one group; their rows are stored under this name


def read_store_url(environment: Mapping[str, str], *, store: str | None = None) -> str:
    """Return the store's URL. Raises `ConfigError`.

    `store`, from the command line, overrides the variable. An empty variable counts as unset.
    """
    return checked_store_url(STORE, store or environment.get(STORE) or DEFAULT_STORE)


def checked_store_url(_: str, text: str) -> str:
    """Check a URL as settings are checked, by the variable's name and its text. Raises `ConfigError`."""
    locate(text)
    return text
