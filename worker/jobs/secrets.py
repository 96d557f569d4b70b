"""Fills in the secrets of job configurations just before sending; they are never stored.

Filled-in values are remembered, so that messages can hide them. A text refers to a variable of the worker's environment
as `${INTERLOCK_NAME}` or `$INTERLOCK_NAME`; a doubled `$` escapes it. A secret in AWS Secrets Manager is
`secretsmanager://name`, or `secretsmanager://name#key` for one member of a secret that is a JSON object.
"""

import re
from collections.abc import Container, Mapping
from typing import Protocol, cast

from worker.core.errors import Rejected
from worker.core.model.templates import SECRET_PREFIX
from worker.core.model.values import Json

MANAGED = "secretsmanager://"

# A reference ends with its last valid character and never in punctuation, so that it can be part of a sentence.
_REFERENCE = re.compile(
    rf"(?P<escape>\$)?\$(?:\{{(?P<braced>{SECRET_PREFIX}[^{{}}]*)\}}|(?P<bare>{SECRET_PREFIX}\w+))"
    rf"|(?P<managed>{MANAGED}[\w/+=.@:-]*[\w=](?:#[\w.-]*\w)?)",
    re.ASCII,
)


class MissingSecret(Rejected):
    """Signals that a job names a secret that is not set.

    Without the secret the target would only reject the request later.
    """

    def __init__(self, name: str) -> None:
        problem = (
            f"{name}, which does not exist in AWS Secrets Manager, or has no such key; create it, or correct the name"
            if name.startswith(MANAGED)
            else f"${{{name}}}, which is not set; set it where the worker runs"
        )
        super().__init__(f"the job's configuration names {problem}")
        self.name = name


class SecretSource(Protocol):
    async def read(self, name: str) -> str | None:
        """Return the value of a secret, or None if there is none.

        Raises `RetryLater` if it cannot be read now, and `Rejected` if this worker may not read it.
        """
        ...

    def forget(self, name: str) -> bool:
        """Drop a rejected value, so that the next read fetches it; True if that may give a new one."""
        ...


class EnvironmentSecrets:
    """Reads secrets from the worker's environment. `withheld` names are the worker's own, not for jobs."""

    def __init__(self, environment: Mapping[str, str], withheld: Container[str] = ()) -> None:
        self._values = {name: value for name, value in environment.items() if name.startswith(SECRET_PREFIX)}
        self._withheld = withheld

    async def read(self, name: str) -> str | None:
        if name in self._withheld:
            raise Rejected(f"${{{name}}} is the worker's own and no job gets it; give the job's secret another name")
        return self._values.get(name)

    def forget(self, name: str) -> bool:  # noqa: ARG002 - the port requires it
        """Return False: an environment does not change while its process runs."""
        return False


class JobSecrets:
    """Reads every kind of secret that a job may name, each from its own source."""

    def __init__(self, environment: SecretSource, managed: SecretSource) -> None:
        self._environment, self._managed = environment, managed

    async def read(self, name: str) -> str | None:
        return await self._home(name).read(name)

    def forget(self, name: str) -> bool:
        return self._home(name).forget(name)

    def _home(self, name: str) -> SecretSource:
        return self._managed if name.startswith(MANAGED) else self._environment


def secrets_named(template: str) -> list[str]:
    """Return the references to secrets in a text, as they are written there."""
    return [match[0] for match in _REFERENCE.finditer(template) if not match["escape"]]


def fill_known(template: str, values: Mapping[str, str]) -> str:
    """Fill in names that look like secrets but are not; everything else stays, escapes included."""

    def fill(match: re.Match[str]) -> str:
        return match[0] if match["escape"] else values.get(_name(match), match[0])

    return _REFERENCE.sub(fill, template)


class Filling:
    """Fills in the secrets of one request and remembers them, so that messages can hide them."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source
        self._values: dict[str, str] = {}
        self._hidden: set[str] = set()

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(self._values.values()) | self._hidden

    def hide(self, value: str) -> None:
        """Treat a value made from secrets, such as an encoded credential, as a secret."""
        self._hidden.add(value)

    def forget(self) -> bool:
        """Drop secrets that the target rejected, so that they are read again; True if a retry makes sense.

        The old values stay hidden, because the rejection may quote them.
        """
        forgotten = [name for name in self._values if self._source.forget(name)]
        self._hidden |= set(self._values.values())
        self._values = {}
        return bool(forgotten)

    async def text(self, template: str) -> str:
        """Fill in one text. Raises `MissingSecret`."""
        for match in _REFERENCE.finditer(template):
            if not match["escape"]:
                await self._learn(_name(match))
        return _REFERENCE.sub(self._fill, template)

    async def texts(self, templates: Mapping[str, str]) -> dict[str, str]:
        return {name: await self.text(template) for name, template in templates.items()}

    async def values(self, value: Json) -> Json:
        """Fill in every text inside a JSON value, before encoding, because a secret may contain quotes."""
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
        return match[0][1:] if match["escape"] else self._values[_name(match)]


def _name(match: re.Match[str]) -> str:
    return match["managed"] or match["braced"] or match["bare"]
