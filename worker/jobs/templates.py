"""Fills in the variables of a job's configuration for one attempt."""

from collections.abc import Mapping, Sequence

from worker.core.model.templates import render
from worker.core.model.values import Json
from worker.core.run.state import Run
from worker.jobs.runner import Config, RunContext


def context_of(run: Run, callback_url: str = "") -> RunContext:
    key = run.key
    return RunContext(
        pipeline=key.pipeline,
        schedule=key.schedule,
        period=key.period,
        run_id=run.run_id,
        attempt=run.attempt,
        callback_url=callback_url,
    )


def filled_in(config: Config, run: Run, callback_url: str = "") -> dict[str, Json]:
    """Return the configuration for this attempt's target; the runner fills in the secrets later."""
    return fill(config, template_values(context_of(run, callback_url)))


def fill(config: Config, values: Mapping[str, str]) -> dict[str, Json]:
    """Return a configuration with the given variables filled in, at any depth."""
    return {name: _filled(value, values) for name, value in config.items()}


def template_values(context: RunContext) -> dict[str, str]:
    period = context.period
    return {
        "DATE": period.date.isoformat(),
        "HOUR": "" if period.hour is None else f"{period.hour:02d}",
        "PIPELINE": context.pipeline,
        "SCHEDULE": context.schedule,
        "RUN_ID": context.run_id,
        "ATTEMPT": str(context.attempt),
        "PAR_DAY": context.par_day,
        "PAR_HOUR": context.par_hour,
        "CALLBACK_URL": context.callback_url,
    }


def _filled(value: Json, values: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        return render(value, values)
    if isinstance(value, Mapping):
        return {name: _filled(member, values) for name, member in value.items()}
    if isinstance(value, Sequence):
        return [_filled(member, values) for member in value]
    return value
