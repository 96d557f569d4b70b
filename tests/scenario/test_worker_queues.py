"""Queues as a worker consumes them: no message ends it, whatever its handler makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from consumers.outbox.dead_letter_replay import Way, sent_back
from consumers.queues.dead_letters import queue_letter_source
from consumers.queues.queue import Message
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.embedded_workers import Crew
from tests.support.worlds.queue import QueueWorld
from worker.app.dependencies import WorkerDeps
from worker.app.queues import queue_consumer
from worker.config.roles import Role
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.row_codec import encode


@on_virtual_time
async def test_a_message_that_meets_a_mistake_of_ours_becomes_a_dead_letter_and_the_others_are_handled() -> None:
    world, surprises = QueueWorld(), list[Exception]()

    async def trip(message: Message) -> None:
        if message.body == "odd":
            raise KeyError("detail")

    world.handled.before = trip
    for body in ("odd", "even"):
        world.queue.send(body)
    consumer = queue_consumer(
        "alerts",
        world.queue,
        world.handled,
        tables=world.watched,
        clock=world.clock,
        on_unexpected_error=surprises.append,
    )

    async with world.consuming(consumer):
        await world.clock.sleep(3600)
        world.queue.send("later")
        await world.clock.sleep(60)

    assert world.handled.bodies == ["even", "later"]
    [letter] = await world.letters_kept()
    assert "KeyError" in letter.reason
    assert len(surprises) == 5
    assert len(world.queue) == 0


@on_virtual_time
async def test_a_queue_that_can_no_longer_be_used_is_waited_for_and_said_to_be_so() -> None:
    world = QueueWorld()
    consumer = queue_consumer("alerts", world.queue, world.handled, tables=world.watched, clock=world.clock)

    with capture_logs() as lines:
        async with world.consuming(consumer):
            await world.clock.sleep(30)
            world.queue.trouble = lambda _: ConfigError("AccessDenied")
            await world.clock.sleep(30)  # the poll under way ends
            world.queue.send("late")
            await world.clock.sleep(600)
            world.queue.trouble = lambda _: None
            await world.clock.sleep(60)

    assert world.handled.bodies == ["late"]
    assert {"event": "queue.unusable", "log_level": "error", "queue": "alerts", "reason": "AccessDenied"} in lines


@on_virtual_time
async def test_a_queue_that_was_never_of_use_ends_the_worker() -> None:
    world = QueueWorld()
    world.queue.trouble = lambda _: ConfigError("there is no such queue")

    with pytest.RaisesGroup(ConfigError):
        await queue_consumer("alerts", world.queue, world.handled, tables=world.watched, clock=world.clock).run()


@on_virtual_time
async def test_letters_of_queues_are_replayed_by_whoever_has_the_engines_duty() -> None:
    """Those who only take messages have no session, and so cannot be the only one to do it."""
    crew, sent = QueuesAndEngine(), list[str]()

    async def send(body: str, _group: str | None) -> None:
        sent.append(body)

    crew.dead_letter_handlers = {queue_letter_source("alerts"): sent_back(send)}
    letters, now = DeadLetters(crew.store), crew.clock.now()
    letter = DeadLetter(id="m1", source=queue_letter_source("alerts"), at=now, reason="it failed")
    await letters.put(letter, encode({"body": "once more"}), now=now)
    crew.worker("engine", Role.ENGINE, Role.SCHEDULER)
    crew.worker("relay", Role.RELAY)
    await crew.clock.sleep(10)

    await Replays(crew.store, GROUP).ask(letter, now)
    await crew.clock.sleep(30)

    assert sent == ["once more"]
    assert await letters.list(letter.source, 10) == []


@dataclass
class QueuesAndEngine(Crew):
    dead_letter_handlers: Mapping[str, Way] = field(default_factory=dict[str, Way])

    def deps(self) -> WorkerDeps:
        deps = super().deps()
        return replace(deps, outputs=replace(deps.outputs, dead_letter_handlers=self.dead_letter_handlers))
