"""A worker on DynamoDB hears from every answer whether its clock is right."""

from datetime import timedelta

import pytest

from tests.support.aws.emulators import ministack, new_names, use_test_credentials
from tests.support.clock.manual import ManualClock
from worker.membership.clock_guard import ClockGuard
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables

pytestmark = pytest.mark.xdist_group("aws")


@pytest.mark.parametrize(("off_by", "is_trusted"), [(timedelta(0), True), (timedelta(hours=-1), False)])
async def test_a_clock_that_is_off_is_noticed_with_the_first_answer(off_by: timedelta, *, is_trusted: bool) -> None:
    use_test_credentials()
    clock = ManualClock(SystemClock().now() + off_by)
    guard = ClockGuard(clock)
    settings = ClientSettings(endpoint=ministack().proxy.url, read_s=20.0)
    tables = DynamoTables(new_names(), clock, settings, observe_time=guard.observe)
    await tables.ensure_tables()

    await tables.ping()

    await tables.stop()
    assert guard.is_trusted is is_trusted
