"""Pipeline files as text, part by part, and what loading one gives."""

from datetime import date

from worker.config.load import Loaded, load_text
from worker.core.model.calendars import Calendar

TODAY = date(2026, 1, 5)
HEAD = "pipeline: {id: orders}\n"
JOB = "job: {type: glue, config: {jobName: etl}}\n"
TRIGGER = "schedule: {trigger: {key: orders-loaded, check: exists}}\n"


def load(text: str, *, calendars: dict[str, Calendar] | None = None) -> Loaded:
    return load_text(text, file="orders.yaml", calendars=calendars, today=TODAY)


def errors(text: str) -> list[str]:
    """The errors without the file's name."""
    loaded = load(text)
    assert loaded.pipeline is None
    return [str(problem).removeprefix("orders.yaml:").replace(" error:", "") for problem in loaded.errors]
