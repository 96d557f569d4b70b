"""The grid of a schedule's last periods: outcome, attempts and deadline of each, oldest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from worker.core.run.state import Run
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodColumn:
    """PeriodColumn is one period. `above` and `label` together name it; `above` only where it changes.

    `late` is how long after its deadline it completed; None if it was in time or is not late by a known time.
    """

    period: str
    above: str
    label: str
    attempts: int
    verdict: Verdict | None
    late: timedelta | None


def period_columns(runs: Sequence[tuple[str, Run | None, SlaWatch | None]]) -> list[PeriodColumn]:
    """Return the columns of runs that are oldest first, each with its period's text."""
    columns: list[PeriodColumn] = []
    last = ""
    for text, run, watch in runs:
        above, label = _names(text)
        columns.append(
            PeriodColumn(
                period=text,
                above=above if above != last else "",
                label=label,
                attempts=run.attempt if run else 0,
                verdict=watch.verdict if watch else None,
                late=lateness(run, watch),
            )
        )
        last = above
    return columns


def lateness(run: Run | None, watch: SlaWatch | None) -> timedelta | None:
    """Return how long after its deadline a run ended; None if it did not end late."""
    due = watch.breach_at if watch else None
    if run is None or due is None or not run.is_ended or run.since <= due:
        return None
    return run.since - due


def _names(text: str) -> tuple[str, str]:
    """Return a period in two parts: `2027-03` and `22`, or `03-22` and `05`."""
    period = Period.parse(text)
    if period is None:
        return "", "?"
    if period.hour is None:
        return f"{period.date:%Y-%m}", f"{period.date:%d}"
    minute = "" if period.minute is None else f":{period.minute:02d}"
    return f"{period.date:%m-%d}", f"{period.hour:02d}{minute}"
