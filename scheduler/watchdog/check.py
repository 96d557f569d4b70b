"""What a check is: it looks, and says what it found and what it would do about it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from worker.core.errors import Rejected, WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that did not happen. `act` tells people or makes up for it; repeating it is harmless.

    A routine one is there in every pass, and says nothing about whether something is wrong.
    """

    about: str  # a run, a pipeline, a part of ourselves
    sentence: str
    act: Callable[[], Awaitable[None]]
    is_routine: bool = False


def few(sentences: Sequence[str], number: int) -> str:
    """The first of them in one line, and how many more there are."""
    more = f"; and {len(sentences) - number:,} more" if len(sentences) > number else ""
    return "; ".join(sentences[:number]) + more


def unreadable(about: str, problem: Rejected) -> Finding:
    """A row that was damaged from outside: it is told as the check's trouble, and hides nothing beside it."""

    async def act() -> None:
        raise problem

    return Finding(about=about, sentence=str(problem), act=act)


def _none() -> int:
    return 0


# Looks at what there is to look at by now; reads only. Whatever it raises is the check's own trouble.
Look: TypeAlias = Callable[[datetime], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogCheck:
    """One row of the watchdog's table. `is_vital`: while it fails, nobody may count on being told anything.

    `left` says how many pipelines the last look left to later ones.
    """

    name: str
    look: Look
    is_vital: bool = False
    left: Callable[[], int] = _none


class Impaired(WorkerError):
    """A part of ourselves does not do its work: each by its name, with what is wrong with it, and what to do still."""

    def __init__(self, parts: Mapping[str, str], findings: Sequence[Finding] = ()) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in parts.items()))
        self.parts, self.findings = parts, findings
