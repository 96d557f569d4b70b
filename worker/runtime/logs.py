"""Logs: one line per event with facts as keys; JSON for machines, coloured lines for a terminal.

An event's name is a constant `noun.past_verb`. The code never logs bodies, tokens and addresses with credentials; the
redaction here is the last line of defence, not the first. Logging is configured once.
"""

import io
import json
import logging
import re
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, TextIO, TypeAlias, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from worker.runtime.clock import Clock
from worker.runtime.json_bytes import to_json
from worker.runtime.line_writer import LineWriter
from worker.runtime.shown_text import visible

Logger: TypeAlias = FilteringBoundLogger
Facts: TypeAlias = MutableMapping[str, Any]  # structlog's type of an unfinished line

REDACTED: Final = "[redacted]"
TEXT_MAX: Final = 2_000
DEPTH_MAX: Final = 4
MEMBERS_MAX: Final = 50

_SECRET_NAME: Final = re.compile(
    r"passw|secret|token|credential|authori[sz]ation|cookie|api_?key|webhook|(^|_)body$", re.IGNORECASE
)
_SECRET_TEXT: Final = re.compile(
    r"xox[a-z]-[\w-]+"  # chat tokens
    r"|https://hooks\.[^\s\"']+"  # a webhook's address is its password
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password of a URL
    r"|(?<=/api/v1/jobs/)[\w.-]+"  # the signed part of a callback address
)
# Every text that the pattern above matches also matches this one, which takes a fraction of the time: each alternative
# begins with a plain letter, so most positions of a text are passed over at once.
_MAYBE_SECRET: Final = re.compile(r"xox|:/|AKIA|ASIA|b[eE][aA]|B[eE][aA]|b[aA]|B[aA]|/api/v1/jobs/")


def configure_logs(
    stream: TextIO | LineWriter,
    clock: Clock,
    *,
    level: int = logging.INFO,
    is_json: bool | None = None,
    is_coloured: bool = True,
    unshown: frozenset[str] = frozenset(),
) -> None:
    """Send all logs to `stream`, including warnings and errors of libraries. Call it once, at start-up.

    Without `is_json`, a terminal gets lines for people and any other stream JSON. Only lines for people leave out the
    events of `unshown`. A `LineWriter` reports the lines it lost as `log.lost`, at any level.
    """
    if is_json if is_json is not None else not stream.isatty():
        processors = [*_common(clock), structlog.processors.JSONRenderer(serializer=_as_line)]
    else:
        processors = [_leave_out(unshown), *_common(clock), *_for_people(clock, is_coloured=is_coloured)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", stream)),
    )
    if isinstance(stream, LineWriter):
        stream.describe_loss = partial(_loss_line, processors)
    logging.basicConfig(handlers=[_FromLibraries()], level=logging.WARNING, force=True)


def _loss_line(processors: Sequence[Processor], lost: int, reason: str) -> str:
    line = io.StringIO()
    at_every_level = structlog.make_filtering_bound_logger(logging.NOTSET)
    _log = structlog.wrap_logger(structlog.WriteLogger(line), list(processors), wrapper_class=at_every_level)
    _log.error("log.lost", lines=lost, reason=reason)
    return line.getvalue().rstrip("\n")


def logger() -> Logger:
    """Return a logger that a module can keep: it follows `configure_logs`, before and after the call."""
    return structlog.get_logger()


@contextmanager
def logs_kept_back() -> Generator[None]:
    """Suppress all logs below critical, for a command that shows the same facts in its own output."""
    kept = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**kept)


def redact(_logger: object, _method: str, facts: Facts) -> Facts:
    """Hide values that look like secrets, by name or by form, and cut values that are too long."""
    return {name: _redacted(name, value, DEPTH_MAX) for name, value in facts.items()}


def _common(clock: Clock) -> list[Processor]:
    def stamp(_logger: object, _method: str, facts: Facts) -> Facts:
        facts["at"] = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return facts

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        stamp,
        structlog.processors.format_exc_info,
        redact,  # after the traceback has become text, before anything is written
    ]


def _leave_out(unshown: frozenset[str]) -> Processor:
    def leave_out(_logger: object, _method: str, facts: Facts) -> Facts:
        if facts.get("event") in unshown:
            raise structlog.DropEvent
        return facts

    return leave_out


def _for_people(clock: Clock, *, is_coloured: bool) -> list[Processor]:
    def stamp_locally(_logger: object, _method: str, facts: Facts) -> Facts:
        return {**facts, "at": clock.now().astimezone().strftime("%H:%M:%S")}

    return [
        stamp_locally,
        _harmless,
        # A plain traceback: the pretty ones show local variables, which may include secrets.
        structlog.dev.ConsoleRenderer(
            colors=is_coloured, exception_formatter=structlog.dev.plain_traceback, timestamp_key="at"
        ),
    ]


def _harmless(_logger: object, _method: str, facts: Facts) -> Facts:
    """Replace control characters, with which a value from outside could move the cursor or change colours."""
    return {name: visible(value) if isinstance(value, str) else value for name, value in facts.items()}


def _as_line(facts: Facts, **_: object) -> str:
    try:
        return to_json(facts).decode()
    except ValueError:  # a lone surrogate, as in a file name that is not valid text
        return json.dumps(facts, default=repr)


@lru_cache(maxsize=1_000)
def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _redacted(name: str, value: object, depth: int) -> object:
    if is_secret_name(name):
        return REDACTED
    if type(value) is str:  # fast path: most values are strings, and there are many lines
        return redacted_text(value)
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping() if depth:
            members = cast("Mapping[object, object]", value)
            some = list(members.items())[:MEMBERS_MAX]
            return {str(key): _redacted(str(key), member, depth - 1) for key, member in some}
        case list() | tuple() if depth:
            listed = cast("Sequence[object]", value)
            return [_redacted("", member, depth - 1) for member in listed[:MEMBERS_MAX]]
        case _:
            return redacted_text(_text_of(value))


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  a log line about an error must not raise another
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def redacted_text(text: str) -> str:
    """Hide parts of a text that look like secrets, and cut it at `TEXT_MAX` characters."""
    shown = _SECRET_TEXT.sub(REDACTED, text) if _MAYBE_SECRET.search(text) else text
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}… ({len(shown)} characters)"


class _FromLibraries(logging.Handler):
    """Forwards the standard-library log records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger().log(
            record.levelno, "library.spoke", library=record.name, said=record.getMessage(), exc_info=record.exc_info
        )


# `app` logs it: the event name (`noun.past_verb`) and its facts.
Log: TypeAlias = Callable[[str, Mapping[str, object]], None]


def to_nobody(_: str, __: Mapping[str, object]) -> None:
    return
