"""The job targets as a worker has them."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.clock.manual import ManualClock
from worker.app.runners import CommandRoot, open_targets
from worker.config.settings import HEARTBEAT_URL, SLACK_TOKEN, read_settings
from worker.core.errors import Rejected
from worker.store.sqlite.tables import SqliteTables


@pytest.mark.parametrize("name", [SLACK_TOKEN, HEARTBEAT_URL])
async def test_no_job_can_name_a_credential_of_the_worker(name: str, tmp_path: Path) -> None:
    clock, environment = ManualClock(), {name: "https://s3cret.example/", "INTERLOCK_KEY": "k"}
    async with AsyncExitStack() as stack:
        targets = await open_targets(
            stack,
            read_settings(environment),
            environment,
            tables=SqliteTables.in_memory(clock),
            clock=clock,
            command=CommandRoot(path=tmp_path, is_shared=True),
        )

        assert await targets.secrets.read("INTERLOCK_KEY") == "k"
        with pytest.raises(Rejected):
            await targets.secrets.read(name)
