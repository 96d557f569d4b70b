"""What a log line looks like, and what never reaches one."""

import errno
import io
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.support.clock.manual import ManualClock
from worker.runtime.line_writer import LineWriter
from worker.runtime.logs import REDACTED, TEXT_MAX, configure_logs, logger, redacted_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What goes down a pipe. Logging is as it was once the test is over."""
    handlers, level = logging.root.handlers[:], logging.root.level
    stream = io.StringIO()
    configure_logs(stream, ManualClock())
    yield stream
    structlog.reset_defaults()
    logging.root.handlers[:], logging.root.level = handlers, level


def facts(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_on_a_pipe_each_fact_is_one_line_of_json(written: io.StringIO) -> None:
    logger().info("lease.taken", shard="0", counter=3)

    assert facts(written) == [
        {"event": "lease.taken", "shard": "0", "counter": 3, "level": "info", "at": "2026-03-03T12:00:00.000Z"}
    ]


@pytest.mark.usefixtures("written")
def test_on_a_terminal_a_line_is_coloured_and_no_json() -> None:
    terminal = Terminal()
    configure_logs(terminal, ManualClock())

    logger().warning("feed.trimmed", source="control")

    assert "feed.trimmed" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


@pytest.mark.usefixtures("written")
def test_on_a_terminal_a_value_from_outside_cannot_move_the_cursor() -> None:
    terminal = Terminal()
    configure_logs(terminal, ManualClock(), is_coloured=False)

    logger().warning("feed.trimmed", source="\x1b[2Jgone")

    assert "\x1b" not in terminal.getvalue()
    assert "\\x1b[2Jgone" in terminal.getvalue()


@pytest.mark.usefixtures("written")
def test_either_form_can_be_forced() -> None:
    terminal, pipe = Terminal(), io.StringIO()

    configure_logs(terminal, ManualClock(), is_json=True)
    logger().info("lease.taken")
    configure_logs(pipe, ManualClock(), is_json=False, is_coloured=False)
    logger().info("lease.taken")

    assert json.loads(terminal.getvalue())["event"] == "lease.taken"
    assert "[info     ] lease.taken" in pipe.getvalue()


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.usefixtures("written")
def test_only_lines_for_people_leave_out_what_they_are_told_elsewhere(is_json: bool) -> None:
    stream = io.StringIO()
    configure_logs(stream, ManualClock(), is_json=is_json, unshown=frozenset({"run.damaged"}))

    logger().warning("run.damaged")

    assert bool(stream.getvalue()) is is_json


def test_what_is_bound_at_the_edge_is_on_every_line_below_it(written: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(run="orders/daily/2026-03-03"):
        logger().info("job.started")
    logger().info("worker.stopped")

    first, second = facts(written)
    assert first["run"] == "orders/daily/2026-03-03"
    assert "run" not in second


def test_details_are_left_out_unless_asked_for(written: io.StringIO) -> None:
    logger().debug("record.handled")

    assert facts(written) == []


@pytest.mark.parametrize(
    "name", ["token", "slack_token", "password", "Authorization", "api_key", "webhook_url", "body"]
)
def test_a_fact_that_is_called_a_secret_is_hidden(written: io.StringIO, name: str) -> None:
    logger().info("job.started", **{name: "hunter2"}, nested={name: ["hunter2"]})

    [line] = facts(written)
    assert line[name] == REDACTED
    assert line["nested"] == {name: REDACTED}
    assert "hunter2" not in written.getvalue()


@pytest.mark.parametrize(
    ("told", "secret"),
    [
        ("refused xoxb-123-abc again", "xoxb-123-abc"),
        ("posting to https://hooks.slack.com/services/T0/B0/xyz failed", "T0/B0/xyz"),
        ("the key AKIAABCDEFGHIJKLMNOP is unknown", "AKIAABCDEFGHIJKLMNOP"),
        ("sent Authorization: Bearer eyJhbGciOi.x.y", "eyJhbGciOi"),
        ("GET https://ann:hunter2@host/ failed", "hunter2"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_wherever_it_is(written: io.StringIO, told: str, secret: str) -> None:
    logger().info("alert.refused", reason=told, tries=[told])

    assert secret not in written.getvalue()
    assert REDACTED in written.getvalue()


def test_a_secret_in_a_traceback_is_hidden_too(written: io.StringIO) -> None:
    try:
        int("xoxb-123-abc")
    except ValueError:
        logger().exception("alert.refused")

    assert "xoxb-123-abc" not in written.getvalue()
    assert "ValueError" in facts(written)[0]["exception"]


def test_a_long_text_is_cut(written: io.StringIO) -> None:
    logger().info("job.failed", reason="x" * 10_000)

    assert len(facts(written)[0]["reason"]) < TEXT_MAX + 50


def test_what_cannot_be_json_becomes_text_instead_of_an_error(written: io.StringIO) -> None:
    logger().info("job.failed", reason=ValueError("no such file"), keys={1: {2}})

    assert facts(written)[0]["reason"] == "no such file"


def test_warnings_of_libraries_come_in_the_same_form(written: io.StringIO) -> None:
    logging.getLogger("asyncio").warning("slow callback with %s", "Bearer abc.def")

    [line] = facts(written)
    assert (line["event"], line["level"], line["library"]) == ("library.spoke", "warning", "asyncio")
    assert "abc.def" not in line["said"]


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("not now")


def test_what_cannot_be_shown_at_all_raises_nothing_into_whoever_logs(written: io.StringIO) -> None:
    logger().info("job.failed", reason=Unshowable(), file="half \ud800 of a name")

    [line] = facts(written)
    assert line["reason"] == "a Unshowable that cannot be shown (RuntimeError)"
    assert line["file"] == "half \ud800 of a name"


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("level", [logging.INFO, logging.CRITICAL])
async def test_lines_that_were_lost_are_reported_in_the_log_whatever_its_level(level: int) -> None:
    content, is_full = bytearray(), True

    def write(some: bytes) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        content.extend(some)
        return len(some)

    stream = LineWriter(write)
    configure_logs(stream, ManualClock(), level=level)
    for _ in range(3):
        logger().critical("worker.stopped")
    with pytest.raises(OSError, match="No space left"):
        await stream.deliver("")  # all of them have been tried
    is_full = False
    stream.close()

    [line] = [json.loads(line) for line in content.decode().splitlines()]
    assert (line["event"], line["level"], line["lines"]) == ("log.lost", "error", 3)
    assert line["reason"] == "No space left on device"


@pytest.mark.parametrize(
    "text",
    [
        "xoxb-1-a",
        "see https://hooks.example.com/x",
        "AKIAABCDEFGHIJKLMNOP",
        "ASIAABCDEFGHIJKLMNOP",
        "Bearer abc",
        "bEARER abc",
        "BASIC abc",
        "ba\u017fic abc",  # the regular expression ignores case in all of Unicode
        "postgresql://me:word@db",
        "/api/v1/jobs/abc.def",
    ],
)
def test_the_quick_look_for_secrets_misses_none_of_them(text: str) -> None:
    assert REDACTED in redacted_text(text)
