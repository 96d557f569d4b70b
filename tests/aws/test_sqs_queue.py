"""The queue adapter on real wires: what emulators answer is what our port promises."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from aiobotocore.session import AioSession

from consumers.delivery.retry import RetryPolicy
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters, queue_letter_source
from consumers.queues.polls import Polling
from consumers.queues.queue import Message, Visibility
from consumers.queues.sqs import AwsQueue, open_sqs
from tests.support.aws.emulators import Server, ministack, moto, use_test_credentials
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.sqlite.tables import SqliteTables

if TYPE_CHECKING:
    from types_aiobotocore_sqs.client import SQSClient
    from types_aiobotocore_sqs.literals import QueueAttributeNameType

pytestmark = pytest.mark.xdist_group("aws")

QUICK = Polling(polls_max=2, wait_s=1, visibility_s=10)


def settings_of(server: Server) -> ClientSettings:
    return ClientSettings(endpoint=server.proxy.url, read_s=30.0)


@pytest.fixture(params=[ministack, moto], ids=["ministack", "moto"])
def server(request: pytest.FixtureRequest) -> Server:
    use_test_credentials()
    return request.param()


@pytest.fixture
async def ours(server: Server) -> AsyncIterator["SQSClient"]:
    async with open_sqs(settings_of(server)) as client:
        yield client


@pytest.fixture
async def client(server: Server) -> AsyncIterator["SQSClient"]:
    """Another's, that makes queues and sends to them: the program itself may not."""
    async with AioSession().create_client("sqs", endpoint_url=server.proxy.url) as client:
        yield client


async def new_queue(client: "SQSClient", *, fifo: bool = False) -> str:
    name = f"q{secrets.token_hex(6)}"
    if not fifo:
        return (await client.create_queue(QueueName=name))["QueueUrl"]
    attributes: dict[QueueAttributeNameType, str] = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    return (await client.create_queue(QueueName=f"{name}.fifo", Attributes=attributes))["QueueUrl"]


async def receive_all(queue: AwsQueue) -> list[Message]:
    return list(await queue.receive(messages_max=10, wait_s=1, visibility_s=10))


async def test_a_message_comes_whole_with_its_count_and_time(client: "SQSClient", ours: "SQSClient") -> None:
    url = await new_queue(client)
    queue = AwsQueue(ours, url)
    await client.send_message(QueueUrl=url, MessageBody="é {}")

    [first] = await receive_all(queue)
    assert await queue.change_visibility([Visibility(first.handle, 0)]) == []
    [second] = await receive_all(queue)

    assert (first.body, first.receive_count, second.receive_count) == ("é {}", 1, 2)
    assert first.id == second.id
    assert abs((SystemClock().now() - first.sent_at).total_seconds()) < 60
    assert await queue.delete([second.handle]) == []
    assert await receive_all(queue) == []


async def test_what_is_replayed_comes_again_as_a_new_message(client: "SQSClient", ours: "SQSClient") -> None:
    plain, fifo = AwsQueue(ours, await new_queue(client)), AwsQueue(ours, await new_queue(client, fifo=True))

    await plain.send("again")
    for _ in range(2):
        await fifo.send("again", "a")

    assert [message.body for message in await receive_all(plain)] == ["again"]
    assert [(message.body, message.group) for message in await receive_all(fifo)] == [("again", "a")] * 2


async def test_a_message_in_flight_is_hidden_and_an_empty_queue_is_an_empty_answer(
    client: "SQSClient", ours: "SQSClient"
) -> None:
    url = await new_queue(client)
    queue = AwsQueue(ours, url)
    await client.send_message(QueueUrl=url, MessageBody="a")

    assert len(await receive_all(queue)) == 1
    assert await receive_all(queue) == []


async def test_entries_of_a_batch_fail_by_themselves(client: "SQSClient", ours: "SQSClient") -> None:
    url = await new_queue(client)
    queue = AwsQueue(ours, url)
    await client.send_message(QueueUrl=url, MessageBody="a")
    [message] = await receive_all(queue)

    refusals = await queue.change_visibility([Visibility("no such handle", 5), Visibility(message.handle, 0)])

    assert [(refusal.position, refusal.is_final) for refusal in refusals] == [(0, True)]
    assert len(await receive_all(queue)) == 1


async def test_a_fifo_queue_says_its_groups_and_keeps_one_back_while_it_is_in_flight(
    client: "SQSClient", ours: "SQSClient"
) -> None:
    url = await new_queue(client, fifo=True)
    queue = AwsQueue(ours, url)
    for number in range(2):
        await client.send_message(QueueUrl=url, MessageBody=f"a{number}", MessageGroupId="a")

    [first] = await queue.receive(messages_max=1, wait_s=1, visibility_s=10)

    assert (first.body, first.group) == ("a0", "a")
    assert await receive_all(queue) == []


async def test_a_queue_that_is_not_there_is_a_matter_of_configuration(client: "SQSClient", ours: "SQSClient") -> None:
    url = (await new_queue(client)) + "-not"

    with pytest.raises(ConfigError, match="check the queue's address"):
        await receive_all(AwsQueue(ours, url))


async def test_a_server_that_is_away_is_asked_again_later() -> None:
    use_test_credentials()
    async with open_sqs(ClientSettings(endpoint="http://127.0.0.1:9", connect_s=1.0, read_s=2.0)) as client:
        with pytest.raises(RetryLater, match="SQS ReceiveMessage"):
            await receive_all(AwsQueue(client, "http://127.0.0.1:9/000000000000/q"))


async def test_a_stop_under_load_hands_the_rest_over_and_nothing_is_handled_twice(
    client: "SQSClient", ours: "SQSClient"
) -> None:
    url, clock, count = await new_queue(client), SystemClock(), 120
    handled: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        await clock.sleep(0.05)
        handled[message.body] += 1

    for start in range(0, count, 10):
        await client.send_message_batch(
            QueueUrl=url,
            Entries=[{"Id": str(number), "MessageBody": str(number)} for number in range(start, start + 10)],
        )
    async with asyncio.timeout(50):
        for stop_at in (20, count):
            consumer = QueueConsumer(
                name="wire",
                calls=AwsQueue(ours, url),
                handle=handle,
                tries=RetryPolicy(clock, SqliteTables.in_memory(clock).ping),
                clock=clock,
                pace=QueuePace(in_hand_max=30, polling=QUICK),
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(consumer.run())
                while len(handled) < stop_at:
                    await clock.sleep(0.01)
                consumer.stop()
            assert consumer.in_flight == 0

    assert set(handled.values()) == {1}
    assert len(handled) == count


async def test_a_consumer_handles_parks_and_stops_on_a_real_wire(client: "SQSClient", ours: "SQSClient") -> None:
    url, clock, count = await new_queue(client), SystemClock(), 40
    tables = SqliteTables.in_memory(clock)
    letters, tries = DeadLetters(tables), RetryPolicy(clock, tables.ping)
    handled: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        number = json.loads(message.body)
        if number == 7:
            raise Rejected("seven is not wanted")
        if number == 8 and message.receive_count == 1:
            raise RetryLater("not the first time")
        handled[message.id] += 1

    for start in range(0, count, 10):
        await client.send_message_batch(
            QueueUrl=url,
            Entries=[{"Id": str(number), "MessageBody": str(number)} for number in range(start, start + 10)],
        )
    consumer = QueueConsumer(
        name="wire",
        calls=AwsQueue(ours, url),
        handle=handle,
        tries=tries,
        clock=clock,
        park=QueueDeadLetters("wire", letters, tries, clock).park,
        pace=QueuePace(polling=QUICK, retries=Backoff(attempts_max=5, first_s=0.1, longest_s=1.0)),
    )
    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        while consumer.counts.done < count - 1 or not consumer.counts.parked:
            await clock.sleep(0.05)
        consumer.stop()

    assert len(handled) == count - 1
    assert set(handled.values()) == {1}
    assert (consumer.counts.failed, consumer.counts.parked, consumer.in_flight) == (1, 1, 0)
    assert [letter.reason for letter in await letters.list(queue_letter_source("wire"))] == ["seven is not wanted"]
    assert await receive_all(AwsQueue(ours, url)) == []
