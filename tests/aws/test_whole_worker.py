"""The whole worker on an emulator, with real processes."""

from pathlib import Path

import pytest

from tests.emulators import ministack
from tests.installation import endpoint_of, install
from tests.wholeworker import live_through_a_kill

pytestmark = pytest.mark.timeout(240)


async def test_a_run_goes_from_its_sensor_to_the_chat_although_its_worker_is_killed(tmp_path: Path) -> None:
    await live_through_a_kill(await install(endpoint_of(ministack())), tmp_path)
