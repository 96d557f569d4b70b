"""Makes the result of a probe from a response: selected, bounded and without secrets."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, cast

from worker.core.errors import Rejected
from worker.core.model.probes import Probe
from worker.core.model.rules import look_up
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeAnswer, ProbeResult, ProbeUnknown
from worker.jobs.messages import hide_secrets
from worker.probes.runner import RawResponse
from worker.runtime.json_bytes import from_json, to_json
from worker.store.limits import number_to_text, value_bytes

RESULT_BYTES_MAX: Final = 8 * 1024  # as much as is searched for encoded secrets
_TOO_LONG: Final = f"at most {RESULT_BYTES_MAX} bytes are kept: select fields with jsonPath"


def result_of(probe: Probe, response: RawResponse) -> ProbeAnswer:
    """Return the result of a response, or why it has none."""
    found, selected = _selected(probe, response.value)
    if not found:
        return ProbeUnknown(kind="no-path", reason=f"the response has nothing at jsonPath {probe.select_all!r}")
    members = selected if isinstance(selected, Mapping) else {"value": selected}
    try:
        text = to_json({**members, **response.also}).decode()
        if len(text) > RESULT_BYTES_MAX:
            return ProbeUnknown(kind="too-long", reason=f"the result has {len(text)} characters; {_TOO_LONG}")
        data = cast("Mapping[str, Json]", from_json(hide_secrets(text, response.secrets)))
        value_bytes(data)  # first: it bounds the depth
        _check_numbers(data)
    except (ValueError, Rejected) as problem:
        return ProbeUnknown(kind="unfit", reason=f"the result cannot be stored: {problem}")
    return ProbeResult(data)


def _selected(probe: Probe, value: Json) -> tuple[bool, Json]:
    if probe.select_all:
        return _at(value, probe.select_all)
    if not probe.select:
        return True, value
    # A field that the response lacks is missing from the result: the rule on it says so.
    found = {name: _at(value, path) for name, path in probe.select.items()}
    return True, {name: each for name, (is_there, each) in found.items() if is_there}


def _at(value: Json, path: str) -> tuple[bool, Json]:
    root = "response"
    return look_up({root: value}, f"{root}.{path.removeprefix('$').removeprefix('.')}")


def _check_numbers(value: Json) -> None:
    """Raise `Rejected` for a number that a store could not keep exactly."""
    if isinstance(value, Mapping):
        for member in value.values():
            _check_numbers(member)
    elif isinstance(value, list | tuple):
        for member in value:
            _check_numbers(member)
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number_to_text(value)
