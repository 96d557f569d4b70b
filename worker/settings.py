"""The environment, read once. Only the command line and the wiring of the worker call this."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.store.open import locate

STORE: Final = "INTERLOCK_STORE"
DEFAULT_STORE: Final = "sqlite:///interlock.db"


@dataclass(frozen=True, slots=True)
class Settings:
    store: str  # a URL that `worker.store.open` understands


def read_settings(environment: Mapping[str, str], *, store: str | None = None) -> Settings:
    """Read what the environment says; `store` was said on the command line and wins.

    An empty variable counts as unset, as shells and container files make them. Raises `ConfigError`.
    """
    url = store or environment.get(STORE) or DEFAULT_STORE
    locate(url)
    return Settings(store=url)
