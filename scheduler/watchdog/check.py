"""Define a check of the watchdog: it reads, and returns findings with their actions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from worker.core.errors import Rejected, WorkerError

EVERY: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Finding is something that did not happen. `act` alerts or corrects it; repeating it is harmless.

    A routine finding occurs in every pass and does not indicate a problem.
    """

    about: str  # a run, a pipeline, or a part of Interlock
    sentence: str
    act: Callable[[], Awaitable[None]]
    is_routine: bool = False


def few(sentences: Sequence[str], number: int) -> str:
    """Join the first sentences in one line and add how many more there are."""
    more = f"; and {len(sentences) - number:,} more" if len(sentences) > number else ""
    return "; ".join(sentences[:number]) + more


def unreadable(about: str, problem: Rejected) -> Finding:
    """Return a finding for a damaged row. It counts as a problem of the check and hides no other finding."""

    async def act() -> None:
        raise problem

    return Finding(about=about, sentence=str(problem), act=act)


def _none() -> int:
    return 0


# Reads the state as of now and changes nothing. Any exception counts as a problem of the check.
Look: TypeAlias = Callable[[datetime], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogCheck:
    """WatchdogCheck is one row of the watchdog's table. While a vital check fails, alerts may not arrive.

    Each has an interval of its own. `left` returns how many pipelines the last pass left to later ones.
    """

    name: str
    look: Look
    every: timedelta = EVERY
    is_vital: bool = False
    left: Callable[[], int] = _none


class Impaired(WorkerError):
    """Reports parts of Interlock that do not work, by name, and findings to handle nevertheless."""

    def __init__(self, parts: Mapping[str, str], findings: Sequence[Finding] = ()) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in parts.items()))
        self.parts, self.findings = parts, findings
