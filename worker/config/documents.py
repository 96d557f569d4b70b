"""Parses a text to a document, and drops leftovers of older files."""

from collections.abc import Mapping
from typing import cast

from worker.config.problems import Problems
from worker.yaml.document import BadYaml, Document
from worker.yaml.parser import read_yaml


def read_document(text: str, file: str, *, lenient: bool = False) -> tuple[Document | None, Problems]:
    """Parse a text. The document is None if the text cannot be parsed; the problems say why."""
    try:
        document = read_yaml(text)
    except BadYaml as error:
        problems = Problems(file, None, lenient=lenient)
        problems.fault(error.fault)
        return None, problems
    problems = Problems(file, document, lenient=lenient)
    for fault in document.faults:
        problems.fault(fault)
    return document, problems


def without_leftovers(value: object, problems: Problems) -> object:
    """Drop `schedules` in a lenient reading if `schedule` is given too; a file may have only one.

    The Lambda edition never read it then.
    """
    if not problems.lenient or not isinstance(value, Mapping):
        return value
    members = cast("Mapping[str, object]", value)
    names = {name.lower(): name for name in members}
    name = names.get("schedules")
    if name is None or not members[name] or members.get(names.get("schedule", "")) is None:
        return members
    problems.warning((name,), "`schedule` is given too; ignored", "remove it, or give only `schedules`", key=True)
    return {key: member for key, member in members.items() if key != name}
