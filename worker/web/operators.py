"""Operators: which users and groups of a load balancer or a proxy may act."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from worker.core.errors import ConfigError
from worker.web.access import AccessRole, Caller

OPERATORS: Final = "INTERLOCK_WEB_OPERATORS"
NAME_MAX: Final = 128
GROUPS_MAX: Final = 200

_NAME: Final = re.compile(r"[^\x00-\x20\x7f,](?:[^\x00-\x1f\x7f,]*[^\x00-\x20\x7f,])?")


@dataclass(frozen=True, slots=True)
class WebOperators:
    """Holds names that are compared in full, never as patterns."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def caller(self, user: str, groups: Iterable[str]) -> Caller:
        """Return who calls: an operator if the user or one of the groups is named, otherwise a viewer."""
        is_operator = user in self.users or not self.groups.isdisjoint(groups)
        return Caller(user, AccessRole.OPERATOR if is_operator else AccessRole.VIEWER)


def parse_operators(text: str) -> WebOperators:
    """Parse `user:NAME` and `group:NAME`, separated by commas. Raises `ConfigError`."""
    named: dict[str, set[str]] = {"user": set(), "group": set()}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, name = part.partition(":")
        if kind not in named or not is_name(name):
            raise ConfigError(f"{OPERATORS} has {part!r}; write user:NAME or group:NAME, as in group:data-oncall")
        named[kind].add(name)
    return WebOperators(frozenset(named["user"]), frozenset(named["group"]))


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a user or a group: short, visible, without a comma."""
    return len(text) <= NAME_MAX and _NAME.fullmatch(text) is not None
