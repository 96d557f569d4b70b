"""Mistakes in a runner: they are told, and the engine gets an answer it can go on with."""

from collections.abc import Sequence

import pytest

from tests.support.builders.runners import TOKEN, a_request
from worker.app.runner_boundary import contain_runner_bugs
from worker.core.errors import Rejected, RetryLater
from worker.jobs.runner import (
    BatchRunner,
    Config,
    Handle,
    JobStatus,
    Sightings,
    StartAnswer,
    StartRequest,
    StatusQuery,
    StopAnswer,
    Traits,
    Unknown,
)
from worker.runtime.error_boundary import ErrorBoundary

SILENT = ErrorBoundary(lambda _: None)


class Clumsy:
    """A runner that trips over everything, or raises what it is told to."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem or KeyError("runId")

    def traits(self, _config: Config, /) -> Traits:
        raise self.problem

    async def start(self, _request: StartRequest, /) -> StartAnswer:
        raise self.problem

    async def status(self, _handle: Handle, _config: Config, /) -> JobStatus:
        raise self.problem

    async def find(self, _token: str, _config: Config, /) -> Handle | None:
        raise self.problem

    async def stop(self, _handle: Handle, _config: Config, /) -> StopAnswer:
        raise self.problem


class ClumsyWithMany(Clumsy):
    def group(self, _question: StatusQuery, /) -> str:
        raise self.problem

    async def look(self, _questions: Sequence[StatusQuery], _more: str = "", /) -> Sightings:
        raise self.problem


async def test_a_start_that_met_a_mistake_may_have_been_sent() -> None:
    told = list[Exception]()

    answer = await contain_runner_bugs(Clumsy(), ErrorBoundary(told.append)).start(a_request({}))

    assert isinstance(answer, Unknown)
    assert "KeyError" in answer.message
    assert len(told) == 1


async def test_a_question_that_met_a_mistake_is_asked_again_later() -> None:
    told = list[Exception]()
    runner = contain_runner_bugs(Clumsy(), ErrorBoundary(told.append))

    for asking in (runner.status({}, {}), runner.find(TOKEN, {}), runner.stop({}, {})):
        with pytest.raises(RetryLater, match="KeyError"):
            await asking

    assert len(told) == 3


def test_a_configuration_that_met_a_mistake_is_refused() -> None:
    with pytest.raises(Rejected, match="KeyError"):
        contain_runner_bugs(Clumsy(), SILENT).traits({})


@pytest.mark.parametrize("problem", [RetryLater("later"), Rejected("never")])
async def test_what_a_runner_means_to_raise_is_no_mistake(problem: Exception) -> None:
    told = list[Exception]()

    with pytest.raises(type(problem)):
        await contain_runner_bugs(Clumsy(problem), ErrorBoundary(told.append)).status({}, {})

    assert told == []


async def test_a_runner_that_tells_of_many_jobs_still_does() -> None:
    runner = contain_runner_bugs(ClumsyWithMany(), SILENT)

    assert isinstance(runner, BatchRunner)
    assert not isinstance(contain_runner_bugs(Clumsy(), SILENT), BatchRunner)
    with pytest.raises(RetryLater, match="KeyError"):
        await runner.look([])
    with pytest.raises(Rejected, match="KeyError"):
        runner.group(StatusQuery({}, {}))
