"""Removes keys of older files that the Lambda edition never read."""

from collections.abc import Mapping
from typing import cast

from worker.config.problems import Problems


def without_leftovers(value: object, problems: Problems) -> object:
    """Drop `schedules` in a lenient reading if `schedule` is given too; a file may have only one."""
    if not problems.lenient or not isinstance(value, Mapping):
        return value
    members = cast("Mapping[str, object]", value)
    names = {name.lower(): name for name in members}
    name = names.get("schedules")
    if name is None or not members[name] or members.get(names.get("schedule", "")) is None:
        return members
    problems.warning((name,), "`schedule` is given too; ignored", "remove it, or give only `schedules`", key=True)
    return {key: member for key, member in members.items() if key != name}
