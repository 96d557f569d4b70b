"""Names runs for people: the schedule appears only if the pipeline has several."""

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline


def shown_run(key: RunKey, pipeline: Pipeline) -> str:
    return f"{key.pipeline}/{key.period}" if _is_only(key, pipeline) else str(key)


def rerun_command(key: RunKey, pipeline: Pipeline) -> str:
    return f"interlock rerun {key.pipeline} {key.period}{_schedule(key, pipeline)}"


def replay_command(key: RunKey, pipeline: Pipeline) -> str:
    return f"interlock replay {key.pipeline} {key.period} {key.period}{_schedule(key, pipeline)}"


def _schedule(key: RunKey, pipeline: Pipeline) -> str:
    return "" if _is_only(key, pipeline) else f" --schedule {key.schedule}"


def _is_only(key: RunKey, pipeline: Pipeline) -> bool:
    return [schedule.id for schedule in pipeline.schedules] == [key.schedule]
