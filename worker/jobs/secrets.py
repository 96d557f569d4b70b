"""Secrets in job configurations: filled in at the last moment, never stored, and known so that they can be hidden.

A text names one as `${INTERLOCK_NAME}` or `$INTERLOCK_NAME`; a doubled `$` takes the meaning away.
"""

import re
from collections.abc import Mapping
from typing import Protocol, cast

from worker.core.errors import Rejected
from worker.core.templates import SECRET_PREFIX
from worker.core.values import Json

_REFERENCE = re.compile(rf"(?P<escape>\$)?\$(?:\{{(?P<braced>{SECRET_PREFIX}[^{{}}]*)\}}|(?P<bare>{SECRET_PREFIX}\w+))")


class MissingSecret(Rejected):
    """A job names a secret that nobody set. Sending the request without it would only be refused further away."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the job's configuration names ${{{name}}}, which is not set; set it where the worker runs")
        self.name = name


class SecretSource(Protocol):
    async def read(self, name: str) -> str | None:
        """Give the value of a secret, or None if there is none. Raises `RetryLater` if it cannot be read now."""
        ...


class EnvironmentSecrets:
    """Secrets that were given to the worker in its environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._values = {name: value for name, value in environment.items() if name.startswith(SECRET_PREFIX)}

    async def read(self, name: str) -> str | None:
        return self._values.get(name)


class Filling:
    """Fills in the secrets of one request and remembers them, so that no message repeats them."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source
        self._values: dict[str, str] = {}
        self._hidden: set[str] = set()

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(self._values.values()) | self._hidden

    def hide(self, value: str) -> None:
        """Treat a value made from secrets, such as an encoded credential, as one of them."""
        self._hidden.add(value)

    async def text(self, template: str) -> str:
        """Fill in one text. Raises `MissingSecret`."""
        for match in _REFERENCE.finditer(template):
            if not match["escape"]:
                await self._learn(match["braced"] or match["bare"])
        return _REFERENCE.sub(self._fill, template)

    async def texts(self, templates: Mapping[str, str]) -> dict[str, str]:
        return {name: await self.text(template) for name, template in templates.items()}

    async def values(self, value: Json) -> Json:
        """Fill in every text inside a JSON value: a secret may hold quotes, so this comes before it is written out."""
        match value:
            case str():
                return await self.text(value)
            case Mapping():
                return {name: await self.values(member) for name, member in value.items()}
            case list() | tuple():
                return [await self.values(member) for member in cast("list[Json]", value)]
            case _:
                return value

    async def _learn(self, name: str) -> None:
        if name not in self._values:
            value = await self._source.read(name)
            if value is None:
                raise MissingSecret(name)
            self._values[name] = value

    def _fill(self, match: re.Match[str]) -> str:
        return match[0][1:] if match["escape"] else self._values[match["braced"] or match["bare"]]
