"""Credentials on two event loops, as a worker has them: its own, and that of its heartbeat."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tests.support.aws.emulators import AWS_ENVIRONMENT, new_names
from tests.support.fakes.credential_server import (
    FRESH,
    STATIC,
    CredentialEndpoint,
    a_credential_endpoint,
    a_dynamodb,
)
from worker.core.errors import ConfigError, RetryLater
from worker.net.aws_client import ClientSettings
from worker.net.aws_sessions import session_of_loop, sessions_held
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables

T = TypeVar("T")

AT_ONCE = 5
ONE_TRY = Backoff(attempts_max=1)
EXPIRED = timedelta(seconds=-1)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[CredentialEndpoint]:
    with a_credential_endpoint(monkeypatch) as found:
        yield found


@pytest.fixture
def dynamodb() -> Iterator[str]:
    with a_dynamodb() as url:
        yield url


@pytest.fixture
def loops(dynamodb: str) -> Iterator[list["LoopWithStore"]]:
    both = [LoopWithStore(dynamodb), LoopWithStore(dynamodb)]
    yield both
    for loop in both:
        loop.close()


def a_store(dynamodb: str, *, are_checked: bool = True) -> DynamoTables:
    settings = ClientSettings(endpoint=dynamodb)
    return DynamoTables(new_names(), SystemClock(), settings, backoff=ONE_TRY, are_checked=are_checked)


class LoopWithStore:
    """A loop in a thread, with a store of its own."""

    def __init__(self, dynamodb: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tables = a_store(dynamodb)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._tables.open()).result()

    def ask(self) -> "Future[list[BaseException | None]]":
        """Send a few requests at once; the result is what each came to."""

        async def asked() -> list[BaseException | None]:
            return await asyncio.gather(*(self._tables.ping() for _ in range(AT_ONCE)), return_exceptions=True)

        return self._run(asked())

    def close(self) -> None:
        self._run(self._tables.stop()).result()
        self._run(end_other_tasks()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def end_other_tasks() -> None:
    """End the renewal of credentials, as `asyncio.run` does, or the garbage collector ends it in a later test."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def came_to(*asked: "Future[list[BaseException | None]]") -> list[BaseException | None]:
    return [outcome for each in asked for outcome in each.result()]


def test_valid_credentials_are_used_while_their_endpoint_is_slow_fails_and_recovers(
    endpoint: CredentialEndpoint, loops: list[LoopWithStore]
) -> None:
    """They are in the last ten minutes of their lifetime throughout."""
    assert set(came_to(*(loop.ask() for loop in loops))) == {None}

    endpoint.held = threading.Event()
    assert set(came_to(*(loop.ask() for loop in loops for _ in range(3)))) == {None}
    endpoint.held.set()
    endpoint.held, endpoint.status = None, 500
    assert set(came_to(*(loop.ask() for loop in loops for _ in range(3)))) == {None}
    endpoint.status, endpoint.lifetime = 200, FRESH
    assert set(came_to(*(loop.ask() for loop in loops for _ in range(3)))) == {None}


def test_without_valid_credentials_every_request_is_tried_later_until_they_are_renewed(
    endpoint: CredentialEndpoint, loops: list[LoopWithStore]
) -> None:
    endpoint.lifetime = EXPIRED

    outcomes = came_to(*(loop.ask() for loop in loops))
    assert {type(outcome) for outcome in outcomes} == {RetryLater}

    endpoint.status = 500
    outcomes = came_to(*(loop.ask() for loop in loops))
    assert {type(outcome) for outcome in outcomes} == {RetryLater}

    endpoint.status, endpoint.lifetime = 200, FRESH
    while set(came_to(*(loop.ask() for loop in loops))) != {None}:
        assert endpoint.asked < 100


def test_a_loop_that_is_closed_leaves_no_session_behind() -> None:
    async def used() -> None:
        session_of_loop()

    for _ in range(20):
        asyncio.run(used())

    assert sessions_held() <= 1


async def test_all_clients_of_a_loop_share_a_session() -> None:
    assert session_of_loop() is session_of_loop()


@pytest.mark.parametrize(
    "environment",
    [{}, {"AWS_ACCESS_KEY_ID": "only-half"}],
)
async def test_a_store_without_credentials_does_not_start_and_says_what_to_set(
    dynamodb: str, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    without_credentials(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=r"no usable AWS credentials: .*; set AWS_PROFILE"):
        await a_store(dynamodb, are_checked=False).start()


async def test_a_store_whose_credential_endpoint_fails_is_started_later(
    endpoint: CredentialEndpoint, dynamodb: str
) -> None:
    endpoint.status = 500

    with pytest.raises(RetryLater, match="container-role"):
        await a_store(dynamodb, are_checked=False).start()


async def test_a_client_that_was_opened_too_early_finds_credentials_later(
    endpoint: CredentialEndpoint, dynamodb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_credentials(monkeypatch)
    tables = a_store(dynamodb)
    await tables.start()
    with pytest.raises(RetryLater, match="Unable to locate credentials"):
        await tables.ping()

    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint.url}/credentials")
    while not await is_answered(tables):
        assert not endpoint.asked
    await tables.stop()


async def is_answered(tables: DynamoTables) -> bool:
    with suppress(RetryLater):
        await tables.ping()
        return True
    return False


def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in (*STATIC, "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
