"""Filters of runs: which runs a list, a bulk operation or a statistic is about."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from worker.core.errors import Rejected
from worker.core.run.state import CANCELLED, STATE_WORDS, ForeignRun, Outcome, Run, State, status_word
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.durations import parse_duration
from worker.core.time.timestamps import parse_rfc3339
from worker.store.repos.runs import UnreadableRow

WINDOW_MAX: Final = timedelta(days=400)  # runs are kept as long
_GLOB: Final = re.compile(r"[*?\[]")
_ENDED: Final = frozenset({"completed", "failed", CANCELLED})
_ACTIVE: Final = frozenset(STATE_WORDS.values()) - _ENDED
ACTIVE_WORD: Final = "active"  # any of the states of an active run
ENDED_WORD: Final = "ended"
OPEN_DEADLINE: Final = "open"
_DEADLINES: Final = (*(verdict.value.lower() for verdict in Verdict), OPEN_DEADLINE)
_TEXT_MAX: Final = 500


class BadFilter(Rejected):
    """BadFilter: a filter that names an unknown state, outcome or verdict, or a time that cannot be read."""


class WindowTooLong(Rejected):
    """WindowTooLong: a filter over more time than runs are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Holds what runs to find, as the caller wrote it; empty members match every run.

    `statuses` are the words for people (`failed`), also `active` and `ended`; stored states (`FAILED_FINAL`) are
    accepted. `pipeline` is an id or a glob. `since` and `until` are times or ages (`7d`); they are about when a run
    ended. An active run matches any `since`. `error` is the beginning of the reason, whatever its case. `deadline` is
    `breached`, `met`, `waived` or `open`.
    """

    statuses: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    pipeline: str = ""
    owner: str = ""
    since: str = ""
    until: str = ""
    error: str = ""
    deadline: str = ""

    @property
    def canonical(self) -> str:
        """Return one text for equal filters. A cursor is valid for this text only."""
        lists = (",".join(sorted(set(words))) for words in (self.statuses, self.outcomes))
        times = (self.since, self.until)
        return "\x1f".join((*lists, self.pipeline, self.owner, *times, self.error, self.deadline))


@dataclass(frozen=True, slots=True)
class Window:
    """Holds a time range; `start` is included and `end` is not."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMatcher:
    """Holds a filter that was checked, at one time. Its methods say which runs it is about."""

    window: Window
    statuses: frozenset[str]
    outcomes: frozenset[str]
    pipeline: str
    owner: str
    error: str
    deadline: str

    @classmethod
    def of(cls, wanted: RunFilter, now: datetime, window: Window | None = None) -> "RunMatcher":
        """Check a filter. `window` is the one of the first page. Raises `BadFilter` and `WindowTooLong`."""
        for each in fields(wanted):
            _require_short(each.name, getattr(wanted, each.name))
        if wanted.deadline and wanted.deadline not in _DEADLINES:
            raise BadFilter(f"{wanted.deadline!r} is not a verdict on a deadline; use one of {', '.join(_DEADLINES)}")
        return cls(
            window=window or window_of(wanted, now),
            statuses=_statuses(wanted.statuses),
            outcomes=_outcomes(wanted.outcomes),
            pipeline=wanted.pipeline,
            owner=wanted.owner,
            error=wanted.error.casefold(),
            deadline=wanted.deadline,
        )

    @property
    def only_pipeline(self) -> str | None:
        """Return the one pipeline that the filter names; None if it is a glob or absent."""
        return None if not self.pipeline or _GLOB.search(self.pipeline) else self.pipeline

    @property
    def wants_active(self) -> bool:
        return bool(self.statuses & _ACTIVE) and not self.outcomes

    @property
    def ended_states(self) -> tuple[State, ...]:
        """Return the states of ended runs that can match."""
        completed = "completed" in self.statuses and self._wants(Outcome.SUCCEEDED)
        others = {each for each in Outcome if each is not Outcome.SUCCEEDED}
        failed = bool(self.statuses & {"failed", CANCELLED}) and (not self.outcomes or bool(self.outcomes & others))
        return tuple(state for state, wanted in ((State.COMPLETED, completed), (State.FAILED_FINAL, failed)) if wanted)

    def _wants(self, outcome: Outcome) -> bool:
        return not self.outcomes or outcome in self.outcomes

    def names(self, pipeline: str) -> bool:
        return not self.pipeline or fnmatchcase(pipeline, self.pipeline)

    def wants_state(self, state: str) -> bool:
        """Return whether an active run in a stored state can match."""
        return STATE_WORDS.get(State(state), "") in self.statuses if state in set(State) else False

    def shows(self, run: Run | ForeignRun | UnreadableRow) -> bool:
        """Return whether a row matches in everything but its deadline.

        Rows of the Lambda edition and unreadable ones have neither times nor outcomes, so they match only a filter that
        asks for none.
        """
        if isinstance(run, Run):
            return self.matches(run)
        return self.statuses == _ACTIVE | _ENDED and not (self.outcomes or self.owner or self.error)

    def matches(self, run: Run) -> bool:
        """Return whether a run matches in everything but its deadline."""
        if status_word(run) not in self.statuses or not self.names(run.key.pipeline):
            return False
        if self.outcomes and (run.outcome is None or run.outcome.value not in self.outcomes):
            return False
        if run.since >= self.window.end or (run.is_ended and run.since < self.window.start):
            return False
        if self.owner and run.pipeline_owner != self.owner:
            return False
        return not self.error or run.reason.casefold().startswith(self.error)

    def matches_deadline(self, watch: SlaWatch | None) -> bool:
        if not self.deadline:
            return True
        if watch is None:
            return False
        verdict = OPEN_DEADLINE if watch.verdict is None else watch.verdict.value.lower()
        return verdict == self.deadline


def window_of(wanted: RunFilter, now: datetime) -> Window:
    """Return the time range of a filter. Raises `BadFilter` and `WindowTooLong`."""
    start = _time("since", wanted.since, now) if wanted.since else now - WINDOW_MAX
    # A run that another worker has just ended may be dated a little ahead of this clock.
    end = _time("until", wanted.until, now) if wanted.until else now + timedelta(minutes=5)
    if end - start > WINDOW_MAX + timedelta(days=1):
        span = f"since {wanted.since} until {wanted.until or 'now'}"
        raise WindowTooLong(f"{span} is longer than the 400 days that runs are kept; choose a later since")
    return Window(start, max(start, end))


def _time(name: str, text: str, now: datetime) -> datetime:
    ago = parse_duration(text)
    if ago is not None:
        return now - abs(ago)
    at = parse_rfc3339(text) or parse_rfc3339(f"{text}T00:00:00Z")
    if at is None:
        raise BadFilter(f"{name} {text[:60]!r} is not a time; write 7d, 2h, 2026-03-03 or 2026-03-03T12:00:00Z")
    return at.astimezone(UTC)


def _statuses(words: Iterable[str]) -> frozenset[str]:
    found = {word for text in words for word in _words_of(text)}
    return frozenset(found) or _ACTIVE | _ENDED


def _words_of(text: str) -> frozenset[str]:
    if text in set(State):
        word = STATE_WORDS[State(text)]
        return frozenset({word, CANCELLED}) if word == "failed" else frozenset({word})
    groups = {ACTIVE_WORD: _ACTIVE, ENDED_WORD: _ENDED, **{word: frozenset({word}) for word in _ACTIVE | _ENDED}}
    if text not in groups:
        known = ", ".join((*STATE_WORDS.values(), CANCELLED, ACTIVE_WORD, ENDED_WORD))
        raise BadFilter(f"{text[:60]!r} is not a state of a run; use one of {known}")
    return groups[text]


def _outcomes(words: Iterable[str]) -> frozenset[str]:
    for word in words:
        if word not in set(Outcome):
            raise BadFilter(f"{word[:60]!r} is not an outcome of a run; use one of {', '.join(Outcome)}")
    return frozenset(words)


def _require_short(name: str, value: str | tuple[str, ...]) -> None:
    texts = value if isinstance(value, tuple) else (value,)
    if len(texts) > 32 or any(len(text) > _TEXT_MAX for text in texts):
        raise BadFilter(f"{name} is too long; at most 32 values of {_TEXT_MAX} characters fit")
