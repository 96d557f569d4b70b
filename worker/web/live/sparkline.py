"""The strip of the last outcomes as one small drawing: a bar for each run, one path for each tone."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from worker.web.live.facts import FinishedRun

STEP: Final = 6
BAR: Final = 5
HEIGHT: Final = 18
BARS_MAX: Final = 30

# How high a bar of each tone is: colour is not needed to tell them apart.
_TOPS: Final = {"completed": 8, "breached": 4, "failed": 0, "cancelled": 13}


@dataclass(frozen=True, slots=True)
class SparkPath:
    tone: str
    path: str


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Sparkline is drawn in a box of `width` and `HEIGHT`; `text` says the same in words."""

    width: int
    paths: Sequence[SparkPath]
    text: str
    height: int = HEIGHT


def sparkline(history: Sequence[FinishedRun], late: Container[str]) -> Sparkline:
    """Draw runs, given latest first, from left to right. `late` holds those that breached a deadline."""
    runs = list(reversed(history[:BARS_MAX]))
    parts: dict[str, list[str]] = {}
    for number, run in enumerate(runs):
        tone = _tone(run, late)
        top = _TOPS[tone]
        parts.setdefault(tone, []).append(f"M{number * STEP} {top}h{BAR}v{HEIGHT - top}h-{BAR}z")
    failed = sum(run.word == "failed" for run in runs)
    is_late = sum(run.key in late for run in runs)
    paths = [SparkPath("waiting" if tone == "cancelled" else tone, "".join(path)) for tone, path in parts.items()]
    text = f"{len(runs)} run{'' if len(runs) == 1 else 's'}: {failed} failed, {is_late} late"
    return Sparkline(max(1, len(runs)) * STEP, paths, text)


def _tone(run: FinishedRun, late: Container[str]) -> str:
    if run.word == "completed" and run.key in late:
        return "breached"
    return run.word if run.word in _TOPS else "cancelled"
