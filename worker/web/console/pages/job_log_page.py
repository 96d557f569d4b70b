"""The end of a job's output: a part of the run's page, and a page of its own without JavaScript."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType
from worker.web.api.run_log import RunLog, load_run_log
from worker.web.console.console import Console
from worker.web.console.links import is_web_address
from worker.web.console.run_page import run_key_of
from worker.web.problems import ProblemType, WebProblem

LINES_MAX: Final = 200
SHOWN_CHARS_MAX: Final = 65_536
ATTEMPT_MAX: Final = 1_000_000


async def job_log_page(console: Console, request: Request) -> Response:
    return await console.page(request, "job_log.html", **await _values(console, request))


async def job_log_fragment(console: Console, request: Request) -> Response:
    """Return the output alone, for the run's page."""
    return await console.page(request, "job_log_content.html", **await _values(console, request))


async def _values(console: Console, request: Request) -> dict[str, Any]:
    key = run_key_of(request)
    found = await load_run_log(console.context, key, _attempt(request))
    lines = _last(found.lines or ())
    return {
        "key": key,
        "log": found,
        "lines": lines,
        "lines_total": len(found.lines or ()),
        "where": _where(found),
        "location_is_link": bool(found.location) and is_web_address(found.location or ""),
        "page_link": _link(console, key, found, "log"),
        "part_link": console.links.to("frag", "log", *_names(key), attempt=str(found.attempt.number)),
    }


def _attempt(request: Request) -> int | None:
    given = request.query_params.get("attempt", "")
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= len(str(ATTEMPT_MAX)) and int(given) > 0):
        raise WebProblem(ProblemType.BAD_REQUEST, "an attempt is a number from 1 on")
    return int(given)


def _names(key: RunKey) -> tuple[str, str, str]:
    return key.pipeline, key.schedule, str(key.period)


def _link(console: Console, key: RunKey, found: RunLog, *parts: str) -> str:
    return console.links.to("runs", *_names(key), *parts, attempt=str(found.attempt.number))


def _last(lines: Sequence[str]) -> list[str]:
    """Return the last lines that a page has space for, oldest first."""
    kept, space = list[str](), SHOWN_CHARS_MAX
    for line in reversed(lines[-LINES_MAX:]):
        space -= len(line) + 1
        if space < 0:
            break
        kept.append(line)
    return kept[::-1]


def _where(found: RunLog) -> str:
    """Return where the output is if it cannot be shown here; "" if it is shown, or has a location to show."""
    if found.lines is not None or found.location or found.why:
        return ""
    if found.attempt.job_type in {JobType.COMMAND, ""}:
        return (
            "The output is not on this machine. A command job writes it to a file on the machine of the worker that "
            "started it; read it there with"
        )
    return "The job has not reported an id yet, so its log cannot be found."
