"""Decide what an event means for a target: open an alert there, acknowledge or resolve it, or nothing."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from consumers.alerts.run_status import RunStatus, standing_after
from consumers.alerts.targets.target import Action
from consumers.alerts.threads import version_of
from consumers.outbox.incidents import QUIET, incident_of, is_recovery
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event, EventType
from worker.store.repos.delivery.target_alerts import TargetThread

_ENDS: Final = frozenset({EventType.JOB_COMPLETED, EventType.SLA_MET, EventType.RUN_CANCELLED})
_OVER: Final = frozenset({RunStatus.RECOVERED, RunStatus.DONE, RunStatus.CANCELLED})
_PER_MS: Final = 2  # versions of an incident per millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRule:
    """Says which alerts a target gets, and what it can do with them.

    `has_state`: the target keeps alerts that must be resolved. `is_grouped`: people read it, so that many alerts of one
    type become one message.
    """

    severities: frozenset[Severity] = field(default_factory=lambda: frozenset({Severity.ALERT, Severity.WARNING}))
    has_state: bool = False
    is_grouped: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Holds what a target is sent because of one event, each with its episode, and what it knows then."""

    actions: tuple[tuple[Action, int], ...]
    after: TargetThread

    @property
    def is_groupable(self) -> bool:
        """Return whether a group may report the event instead. An end is always sent: it closes an open alert."""
        return len(self.actions) == 1 and self.actions[0][0] in {Action.TRIGGER, Action.NOTE}


def decide(event: Event, seen: TargetThread, rule: TargetRule) -> Taking | None:
    """Return what a target is sent because of an event; None if that is nothing.

    An alert that follows an acknowledged one gets a new episode: PagerDuty would not notify anyone of a further event
    of an acknowledged alert.
    """
    version, standing = version_of(event), standing_after(seen.standing, event)
    is_old = 0 < version < seen.version
    after = seen if is_old else replace(seen, version=max(version, seen.version), standing=standing)
    severity = severity_of(event.type, event.detail)
    is_wanted = severity in rule.severities
    note = Taking(actions=((Action.NOTE, seen.episode),), after=after) if is_wanted and not rule.has_state else None
    if event.type in _ENDS or is_recovery(event):
        return _ended(event, seen, after, note, is_old=is_old)
    if event.type == EventType.RERUN_ACCEPTED and rule.has_state and seen.is_open and not is_old:
        return _acknowledged(seen, after)
    if not is_wanted or (severity is Severity.SUCCESS and rule.has_state):
        return None
    if is_old and not seen.is_open:
        return note  # it was over before this arrived
    return _triggered(event, seen, after, is_over=standing in _OVER)


def _ended(
    event: Event, seen: TargetThread, after: TargetThread, note: Taking | None, *, is_old: bool
) -> Taking | None:
    if seen.is_open and not is_old:
        closed = replace(after, is_open=False, is_acknowledged=False)
        return Taking(actions=((Action.RESOLVE, seen.episode),), after=closed)
    incident = incident_of(event)
    return None if incident is not None and incident.is_silent_alone else note


def _acknowledged(seen: TargetThread, after: TargetThread) -> Taking | None:
    if seen.is_acknowledged:
        return None
    return Taking(actions=((Action.ACKNOWLEDGE, seen.episode),), after=replace(after, is_acknowledged=True))


def _triggered(event: Event, seen: TargetThread, after: TargetThread, *, is_over: bool) -> Taking:
    is_new = seen.is_open and (seen.is_acknowledged or _is_past(event, seen))
    episode = seen.episode + is_new
    before = ((Action.RESOLVE, seen.episode),) if is_new else ()
    # A breached deadline may be reported after the end of its run: then no other event would resolve the alert.
    ending = ((Action.RESOLVE, episode),) if is_over else ()
    opened = replace(after, is_open=not is_over, is_acknowledged=False, episode=episode)
    return Taking(actions=(*before, (Action.TRIGGER, episode), *ending), after=opened)


def _is_past(event: Event, seen: TargetThread) -> bool:
    """Return whether an incident was quiet for so long that the event begins another one."""
    quiet_ms = (version_of(event) - seen.version) / _PER_MS
    return incident_of(event) is not None and quiet_ms > QUIET / timedelta(milliseconds=1)
