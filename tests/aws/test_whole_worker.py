"""The whole worker on an emulator, with real processes."""

import os
from pathlib import Path

import pytest

from tests.support.aws import calls
from tests.support.aws.calls import Call, Heard
from tests.support.aws.emulators import ministack
from tests.support.worlds.installation import endpoint_of, install
from tests.support.worlds.whole_worker import live_apart, live_through_a_kill

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(240)]


async def test_a_run_goes_from_its_sensor_to_the_chat_although_its_worker_is_killed(tmp_path: Path) -> None:
    await live_through_a_kill(await install(endpoint_of(ministack())), tmp_path)


async def test_a_run_goes_the_same_way_through_workers_with_a_role_each_and_what_each_calls_is_noted(
    tmp_path: Path,
) -> None:
    roles = ("engine,scheduler", "relay", "alerts")

    await live_apart(await install(endpoint_of(ministack())), tmp_path, roles)

    # That each keeps to what its role allows is judged at the end, for all tests together.
    heard = calls.load(Path(os.environ[calls.DIRECTORY]))
    assert {frozenset(each.split(",")) for each in roles} <= {each.roles for each in heard}
    arrived, looked_up = Call("dynamodb:PutItem", "control", "PIPELINE#"), Call("dynamodb:Query", "events/index")
    assert {Heard(arrived, frozenset({"alerts"})), Heard(looked_up, frozenset({"alerts"}))} <= heard
