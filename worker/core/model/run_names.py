"""Names runs for people: the schedule appears only if the pipeline has several."""

from typing import TYPE_CHECKING, Final

from worker.core.model.ids import CRON_SCHEDULE, STREAM_SCHEDULE
from worker.core.model.keys import RunKey

if TYPE_CHECKING:
    from worker.core.model.pipeline import Pipeline

UNNAMED: Final = frozenset({CRON_SCHEDULE, STREAM_SCHEDULE})  # ids of schedules that have no name in the file


def shown_run(key: RunKey, pipeline: "Pipeline") -> str:
    return f"{key.pipeline}/{key.period}" if _is_only(key, pipeline) else str(key)


def name_parts(pipeline: str, schedule: str, period: str) -> list[str]:
    """Return the parts of a run's name without its configuration; an unnamed schedule is left out."""
    return [part for part in (pipeline, "" if schedule in UNNAMED else schedule, period) if part]


def short_name(pipeline: str, schedule: str, period: str) -> str:
    """Return the name of a run without its configuration: `orders/2027-03-22`."""
    return "/".join(name_parts(pipeline, schedule, period))


def shown_key(key: RunKey) -> str:
    return short_name(key.pipeline, key.schedule, str(key.period))


def rerun_command(key: RunKey, pipeline: "Pipeline") -> str:
    return f"interlock rerun {key.pipeline} {key.period}{_schedule(key, pipeline)}"


def explain_command(key: RunKey, pipeline: "Pipeline") -> str:
    return f"interlock explain {key.pipeline} {key.period}{_schedule(key, pipeline)}"


def replay_command(key: RunKey, pipeline: "Pipeline") -> str:
    return f"interlock replay {key.pipeline} {key.period} {key.period}{_schedule(key, pipeline)}"


def _schedule(key: RunKey, pipeline: "Pipeline") -> str:
    return "" if _is_only(key, pipeline) else f" --schedule {key.schedule}"


def _is_only(key: RunKey, pipeline: "Pipeline") -> bool:
    return [schedule.id for schedule in pipeline.schedules] == [key.schedule]
