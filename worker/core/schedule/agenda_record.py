"""Makes the record of an expected run, for programs."""

from datetime import UTC, datetime

from worker.core.model.values import Json
from worker.core.schedule.agenda import PlanEntry


def agenda_record(entry: PlanEntry) -> dict[str, Json]:
    run, zone = entry.run, entry.schedule.zone
    return {
        "pipeline": entry.pipeline,
        "schedule": entry.schedule.id,
        "period": str(run.period),
        "day": entry.day.isoformat(),
        "by": run.by.value,
        "at": _iso(run.at),
        "local": run.at.astimezone(zone).isoformat() if run.at else None,
        "zone": zone.key,
        "warningAt": _iso(run.warning_at),
        "breachAt": _iso(run.breach_at),
        "evaluationAt": _iso(run.evaluation_at),
        "triggerDeadlineAt": _iso(run.trigger_deadline_at),
        "excluded": run.excluded,
        "note": run.note,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
