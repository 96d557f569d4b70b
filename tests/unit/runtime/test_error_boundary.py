"""The error boundary: a bug becomes a retry and is reported; everything else passes unchanged."""

import asyncio

import pytest

from worker.core.errors import Rejected, RetryLater
from worker.runtime.error_boundary import ErrorBoundary


async def test_a_bug_becomes_a_retry_that_names_it_and_is_reported() -> None:
    reported = list[Exception]()

    async def handle(_: str) -> None:
        raise KeyError("unforeseen")

    with pytest.raises(RetryLater, match="KeyError: 'unforeseen'; this is a mistake in Interlock") as raised:
        await ErrorBoundary(reported.append).around(handle)("a record")
    assert reported == [raised.value.__cause__]


@pytest.mark.parametrize("error", [Rejected("no"), RetryLater("later"), asyncio.CancelledError("stop")])
async def test_an_error_with_a_meaning_and_a_cancellation_pass_unchanged(error: BaseException) -> None:
    reported = list[Exception]()

    with pytest.raises(type(error)) as raised, ErrorBoundary(reported.append):
        raise error
    assert raised.value is error
    assert reported == []


async def test_a_result_passes_through_the_boundary() -> None:
    async def double(number: int) -> int:
        return 2 * number

    assert await ErrorBoundary().around(double)(21) == 42
