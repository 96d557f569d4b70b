"""Parses a job's configuration for its runner, again, because rows outlive the files they came from."""

from collections.abc import Mapping
from decimal import Decimal
from typing import TypeVar, cast

from pydantic import ValidationError

from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.jobs.specs import JobConfig

ConfigT = TypeVar("ConfigT", bound=JobConfig)


class UnusableConfig(Rejected):
    """Signals that a job's configuration cannot be used as it is."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"job.config cannot be used: {problem}; correct the pipeline and push it again")


def parse_config(model: type[ConfigT], config: Mapping[str, Json]) -> ConfigT:
    """Parse a configuration. Raises `UnusableConfig` with the first problem."""
    try:
        parsed = model.model_validate(_native(config))
    except ValidationError as error:
        # Leave out the input: it may contain plain credentials.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise UnusableConfig(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from error
    given = parsed.model_dump(by_alias=True)
    missing = [name for name in model.required if not given[name]]
    if missing:
        raise UnusableConfig(f"{missing[0]} is missing")
    if model.either and not any(given[name] for name in model.either):
        raise UnusableConfig(f"{' or '.join(model.either)} is missing")
    return parsed


def _native(value: Json) -> object:
    """Return the value in the types the models expect; some stores return every number as a decimal."""
    match value:
        case Mapping():
            return {name: _native(member) for name, member in value.items()}
        case list() | tuple():
            return [_native(member) for member in cast("list[Json]", value)]
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return value
