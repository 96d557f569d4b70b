"""Credentials that are renewed beside the requests that use them, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from aiobotocore.credentials import AioCredentials, AioRefreshableCredentials
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.net.aws_credentials import (
    AGAIN_VALID_S,
    CREDENTIAL_ERRORS,
    RENEWAL_MAX_S,
    WAIT_MAX_S,
    BackgroundCredentials,
    Found,
)

LIFETIME_S = 3600.0
IN_MANDATORY_WINDOW_S = LIFETIME_S - 300.0  # the library itself would fail every request from here on


class Provider:
    """Gives out keys that live for an hour. `behave` is what becomes of a request for them first."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.asked = self.given = 0
        self.behave: Callable[[], Awaitable[None]] = at_once

    async def find(self) -> Found:
        keys = await self.renew()
        expires = self.clock.now() + timedelta(seconds=LIFETIME_S)
        stock: Any = AioRefreshableCredentials
        return stock(keys["access_key"], "s", "t", expires, self.renew, method="test", time_fetcher=self.clock.now)

    async def renew(self) -> dict[str, str]:
        self.asked += 1
        await self.behave()
        self.given += 1
        expires = self.clock.now() + timedelta(seconds=LIFETIME_S)
        return {"access_key": f"key-{self.given}", "secret_key": "s", "token": "t", "expiry_time": expires.isoformat()}


async def at_once() -> None:
    return


async def never() -> None:
    await asyncio.Event().wait()


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


async def key_of(credentials: BackgroundCredentials) -> str:
    return str((await credentials.get_frozen_credentials()).access_key)


@on_virtual_time
async def test_they_are_fetched_once_for_all_requests() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)

    keys = await asyncio.gather(*(key_of(credentials) for _ in range(50)))

    assert (set(keys), provider.asked) == ({"key-1"}, 1)


@on_virtual_time
async def test_a_request_never_waits_for_new_ones_while_the_old_are_valid() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)
    await key_of(credentials)

    for behave in (never, failing(MetadataRetrievalError(error_msg="no"))):
        provider.behave = behave
        await provider.clock.sleep(IN_MANDATORY_WINDOW_S - provider.clock.monotonic())
        asked_at = provider.clock.monotonic()
        assert await key_of(credentials) == "key-1"
        assert provider.clock.monotonic() == asked_at


@on_virtual_time
async def test_a_renewal_that_never_ends_is_given_up_and_another_succeeds() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)
    await key_of(credentials)
    await provider.clock.sleep(IN_MANDATORY_WINDOW_S)

    provider.behave = never
    await key_of(credentials)
    await asyncio.sleep(1)
    provider.behave = at_once
    await key_of(credentials)
    await provider.clock.sleep(RENEWAL_MAX_S + AGAIN_VALID_S)
    assert (await key_of(credentials), provider.asked) == ("key-1", 2)
    await asyncio.sleep(1)

    assert await key_of(credentials) == "key-2"


@on_virtual_time
async def test_an_endpoint_that_fails_is_not_asked_for_each_request() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)
    await key_of(credentials)
    await provider.clock.sleep(IN_MANDATORY_WINDOW_S)
    provider.behave = failing(MetadataRetrievalError(error_msg="no"))
    asked = provider.asked

    for _ in range(int(10 * AGAIN_VALID_S)):
        assert await key_of(credentials) == "key-1"
        await provider.clock.sleep(0.1)

    assert 1 <= provider.asked - asked <= 2


@on_virtual_time
async def test_once_they_have_expired_requests_fail_until_there_are_new_ones() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)
    await key_of(credentials)
    provider.behave = failing(MetadataRetrievalError(error_msg="no"))
    await provider.clock.sleep(LIFETIME_S - 1)
    assert await key_of(credentials) == "key-1"

    await provider.clock.sleep(2)
    for _ in range(100):
        with pytest.raises(CredentialRetrievalError):
            await key_of(credentials)
        await provider.clock.sleep(0.5)

    provider.behave = at_once
    await provider.clock.sleep(1)
    assert await key_of(credentials) == "key-2"


@on_virtual_time
async def test_a_request_waits_a_bounded_time_for_the_first_ones() -> None:
    provider = Provider()
    provider.behave = never
    credentials = BackgroundCredentials(provider.find)

    with pytest.raises(CredentialRetrievalError, match="no answer within 5 s"):
        await key_of(credentials)

    assert provider.clock.monotonic() == WAIT_MAX_S


@on_virtual_time
async def test_a_request_that_gives_up_does_not_end_the_renewal_for_the_others() -> None:
    provider = Provider()
    credentials = BackgroundCredentials(provider.find)
    provider.behave = lambda: asyncio.sleep(2)
    patient = asyncio.ensure_future(key_of(credentials))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await key_of(credentials)

    assert await patient == "key-1"


# Whatever a provider raises is a failure to get credentials: never an answer of the service that was asked.
@pytest.mark.parametrize(
    "error",
    [
        MetadataRetrievalError(error_msg="no"),
        CredentialRetrievalError(provider="p", error_msg="no"),
        PartialCredentialsError(provider="p", cred_var="secret"),
        ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole"),
        KeyError("AccessKeyId"),
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
        ValueError("Unsupported host"),
        FileNotFoundError("/var/run/token"),
        TimeoutError(),
    ],
)
def test_whatever_goes_wrong_in_a_provider_is_a_failure_of_credentials(error: Exception) -> None:
    @on_virtual_time
    async def ask() -> None:
        provider = Provider()
        provider.behave = failing(error)

        with pytest.raises(CREDENTIAL_ERRORS):
            await key_of(BackgroundCredentials(provider.find))

    ask()


@on_virtual_time
async def test_what_is_missing_at_first_is_looked_for_again() -> None:
    found: list[Found | None] = [None]

    async def find() -> Found | None:
        return found[0]

    credentials = BackgroundCredentials(find)
    with pytest.raises(NoCredentialsError):
        await key_of(credentials)
    found[0] = cast("Found", AioCredentials("key-9", "s", "t"))
    await asyncio.sleep(1)

    assert await key_of(credentials) == "key-9"


@on_virtual_time
async def test_keys_without_an_end_are_looked_for_once() -> None:
    looked = 0

    async def find() -> Found:
        nonlocal looked
        looked += 1
        return cast("Found", AioCredentials("key-9", "s", "t"))

    credentials = BackgroundCredentials(find)
    for _ in range(10):
        assert await key_of(credentials) == "key-9"
        await asyncio.sleep(3600)

    assert looked == 1
