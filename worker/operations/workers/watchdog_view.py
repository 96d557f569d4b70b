"""Reads how the watchdog does: its last signs of life, what does not work, and the alert path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.events import Event, EventType
from worker.core.model.keys import WATCHDOG_DEGRADED, WATCHDOG_LEDGER, watchdog_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.time.timestamps import parse_rfc3339
from worker.store.repos.delivery.alert_probe import AlertPath, PathState
from worker.store.repos.events import Events
from worker.store.repos.marks import Mark, Marks
from worker.store.rows import optional_instant_text
from worker.store.table import Tables

PROBLEMS_READ_MAX: Final = 100  # events about degraded parts
_LATELY: Final = timedelta(days=7)
_NOBODY: Final = PipelineId("")


@dataclass(frozen=True, slots=True)
class DegradedPart:
    """Names a part of the monitoring that does not work. `problem` is empty if its event is too old."""

    name: str
    since: datetime | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogView:
    """Holds the state of the watchdog. `settled_up_to` None: it has never made a pass on this store.

    `heartbeat_at` is when the last interval with a pass began; `is_sound` is whether all vital checks worked then.
    """

    settled_up_to: datetime | None
    heartbeat_at: datetime | None
    is_sound: bool | None
    degraded: Sequence[DegradedPart]
    alert_path: PathState


async def look_at_watchdog(tables: Tables, now: datetime) -> WatchdogView:
    """Read a few rows, whatever the store holds. Raises `RetryLater`."""
    events = Events(tables)
    ledger, degraded = watchdog_mark_sk(WATCHDOG_LEDGER), watchdog_mark_sk(WATCHDOG_DEGRADED)
    marks = await Marks(tables).get_many(_NOBODY, [ledger, degraded])
    beats = await events.newest_of_type(EventType.WATCHDOG_HEARTBEAT, now - _LATELY, 1)
    known: Mapping[str, Json] = marks[degraded].data if degraded in marks else {}
    problems: Mapping[str, str] = {}
    if known:
        begun = await events.newest_of_type(EventType.WATCHDOG_DEGRADED, now - _LATELY, PROBLEMS_READ_MAX)
        problems = _problems([each.event for each in begun])
    sound = beats[0].event.detail.get("sound") if beats else None
    return WatchdogView(
        settled_up_to=_time(marks[ledger], "upTo") if ledger in marks else None,
        heartbeat_at=beats[0].event.at if beats else None,
        is_sound=sound if isinstance(sound, bool) else None,
        degraded=[DegradedPart(name, _instant(known[name]), problems.get(name, "")) for name in sorted(known)],
        alert_path=await AlertPath(tables).load(),
    )


def watchdog_record(view: WatchdogView) -> dict[str, Json]:
    """Return the view as the API's document."""
    probe = view.alert_path.probe
    path: dict[str, Json] | None = None
    if probe is not None:
        path = {
            "probeSentAt": optional_instant_text(probe.sent_at),
            "waitingSince": None if view.alert_path.is_answered else optional_instant_text(probe.waiting_since),
            "answered": view.alert_path.is_answered,
        }
    return {
        "type": "watchdog",
        "settledUpTo": optional_instant_text(view.settled_up_to),
        "heartbeatAt": optional_instant_text(view.heartbeat_at),
        "sound": view.is_sound,
        "degraded": [
            {"part": each.name, "since": optional_instant_text(each.since), "problem": each.problem}
            for each in view.degraded
        ],
        "alertPath": path,
    }


def _problems(latest_first: Sequence[Event]) -> dict[str, str]:
    found: dict[str, str] = {}
    for event in reversed(latest_first):
        named = event.detail.get("problems")
        if isinstance(named, dict):
            found |= {str(name): str(problem) for name, problem in named.items()}
    return found


def _time(mark: Mark, name: str) -> datetime | None:
    return _instant(mark.data.get(name))


def _instant(value: Json) -> datetime | None:
    return parse_rfc3339(value) if isinstance(value, str) else None
