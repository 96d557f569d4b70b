"""What a worker adds for people who watch it: nothing on a pipe, lines on a terminal, also next to a chat."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from consumers.outbox.routes import Route, envelope
from consumers.outbox.severities import Severity
from tests.support.aws.emulators import use_test_credentials
from tests.support.clock.manual import NOON, ManualClock
from worker.app.aws import AwsPlatform
from worker.app.embedded import EmbeddedPlatform, Options
from worker.app.platforms import Resources
from worker.app.terminal_output import TerminalLines
from worker.config.settings import ALERTS_QUEUE, ROLES, SLACK_CHANNEL, SLACK_TOKEN, read_settings
from worker.core.model.events import Event
from worker.store.url import DynamoPlace, locate

SLACK = {SLACK_TOKEN: "xoxb-1", SLACK_CHANNEL: "#data"}
STARTED = Event(id="1", type="JOB_TRIGGERED", at=NOON, pipeline="orders", period="2026-03-03", detail={"attempt": 1})


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, _: Severity, line: str) -> None:
        self.lines.append(line)

    async def write(self, severity: Severity, line: str) -> None:
        self.show(severity, line)


async def opened(at: Path, terminal: Terminal | None, environment: Mapping[str, str]) -> Resources:
    nobody = Terminal()
    options = Options(
        settings=read_settings(environment),
        environment={},
        write_alert=(terminal or nobody).write,
        show_line=terminal.show if terminal else None,
    )
    async with AsyncExitStack() as stack:
        return await EmbeddedPlatform(options, at / "interlock.db", ManualClock()).open(stack)


def takers(routes: "list[Route]", event: Event) -> list[str]:
    return [route.name for route in routes if route.pattern.matches(envelope(event))]


@pytest.mark.parametrize("environment", [{}, SLACK])
async def test_a_worker_that_nobody_watches_has_one_route_and_leaves_steps_out(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    resources = await opened(tmp_path, None, environment)

    assert [route.name for route in resources.deps.outputs.routes] == ["console"]
    assert takers(list(resources.deps.outputs.routes), STARTED) == []
    assert "waiting-lines" not in resources.background_tasks


async def test_on_a_terminal_the_console_gets_steps_too(tmp_path: Path) -> None:
    terminal = Terminal()
    resources = await opened(tmp_path, terminal, {})

    assert takers(list(resources.deps.outputs.routes), STARTED) == ["console"]
    assert "waiting-lines" in resources.background_tasks


async def test_next_to_a_chat_the_terminal_has_a_route_of_its_own_that_waits_for_nothing(tmp_path: Path) -> None:
    terminal = Terminal()
    resources = await opened(tmp_path, terminal, SLACK)
    chat, lines = resources.deps.outputs.routes

    assert takers([chat, lines], STARTED) == ["terminal"]
    assert not lines.is_waiting()


async def test_a_worker_on_aws_adds_them_too() -> None:
    use_test_credentials()
    terminal, place = Terminal(), locate("dynamodb://interlock?region=eu-west-1")
    assert isinstance(place, DynamoPlace)
    queue = "https://sqs.eu-west-1.amazonaws.com/111122223333/alerts"
    settings = read_settings({ROLES: "alerts", ALERTS_QUEUE: queue})
    platform = AwsPlatform(settings, {}, place, ManualClock(), terminal=TerminalLines(terminal.write, terminal.show))

    async with AsyncExitStack() as stack:
        resources = await platform.open(stack)

    assert "waiting-lines" in resources.background_tasks
