"""A served store with one pipeline, on a clock that stands still."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.aws import task_roles
from tests.support.aws.calls import Heard
from tests.support.builders.cli_runs import ORDERS
from tests.support.builders.command_line import TODAY
from tests.support.clock.manual import ManualClock
from tests.support.worlds.web import WebWorld, a_web_world
from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import PipelineId
from worker.store.repos.pipelines import Pipelines

ENGINE = frozenset({"engine"})


@pytest.fixture
async def world() -> AsyncGenerator[WebWorld]:
    async with a_web_world(clock=ManualClock(TODAY)) as made:
        await Pipelines(made.tables).put(PipelineId("orders"), ORDERS)
        versions = PipelineVersions(made.tables)
        version = await versions.current(PipelineId("orders"))
        assert version is not None
        await versions.persist(version)
        yield made
        # Whatever a test asked of the API, the console's role on AWS allows it, and so does that of a worker that
        # serves the API beside its engine.
        for role in (task_roles.WEB_OPERATOR, ENGINE):
            assert task_roles.not_allowed(Heard(call, role) for call in made.calls) == []
