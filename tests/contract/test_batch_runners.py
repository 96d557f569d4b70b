"""What every runner must keep that asks about many jobs in one call."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from tests.awstargets import CONFIGS, AwsTarget, aws_target
from tests.jobtargets import Plot
from tests.runners import started
from worker.core.errors import RetryLater
from worker.jobs.runner import BatchRunner, Failed, Question, Running, TargetDown

LISTING = {"glue": "GetJobRuns", "emr": "ListSteps", "emr-serverless": "ListJobRuns", "step-function": "ListExecutions"}
FEW = 4


@dataclass
class Listing:
    """A target with a few running jobs."""

    target: AwsTarget
    runner: BatchRunner
    questions: list[Question] = field(default_factory=list[Question])

    @property
    def call(self) -> str:
        return LISTING[self.target.kind]

    async def start(self, plot: Plot, token: str) -> Question:
        config = self.target.job(plot)
        return Question(await started(self.runner, config, token=token), config)


@pytest.fixture(params=LISTING)
async def listing(request: pytest.FixtureRequest) -> AsyncGenerator[Listing]:
    async with aws_target(str(request.param)) as target:
        runner = target.runner()
        assert isinstance(runner, BatchRunner)
        opened = Listing(target, runner)
        opened.questions += [await opened.start(Plot.RUNS_ON, f"il-{number}") for number in range(FEW)]
        yield opened


def calls(listing: Listing) -> int:
    return listing.target.fake.counted[listing.call]


async def test_jobs_of_one_place_are_asked_about_in_one_call(listing: Listing) -> None:
    groups = {batch.group for question in listing.questions if (batch := listing.runner.batch(question))}

    sightings = await listing.runner.look(listing.questions)

    assert len(groups) == 1
    assert set(sightings.seen) == set(range(FEW))
    assert all(isinstance(status, Running) for status in sightings.seen.values())
    assert calls(listing) == 1


async def test_what_is_seen_of_a_job_among_others_is_what_it_says_by_itself(listing: Listing) -> None:
    failed, over = await listing.start(Plot.FAILS, "il-failed"), await listing.start(Plot.SUCCEEDS, "il-over")
    questions = [failed, *listing.questions, over]

    seen = (await listing.runner.look(questions)).seen

    for place, status in seen.items():
        alone = await listing.runner.status(questions[place].handle, questions[place].config)
        assert type(status) is type(alone)
        if isinstance(status, Failed):
            assert status == alone
    assert set(range(1, FEW + 1)) <= set(seen)


async def test_a_job_that_the_list_does_not_have_is_not_judged(listing: Listing) -> None:
    stranger = Question({**listing.questions[0].handle, "runId": "arn:aws:states:eu-west-1:1:execution:etl:x"}, {})

    seen = (await listing.runner.look([listing.questions[0], stranger])).seen

    assert set(seen) == {0}


async def test_a_long_list_goes_on_where_it_is_told_to(listing: Listing) -> None:
    listing.target.service.page_size = FEW - 1

    first = await listing.runner.look(listing.questions)
    if listing.target.kind == "emr":  # asked by their ids, all of them are in one answer
        assert (set(first.seen), first.more) == (set(range(FEW)), "")
        return
    rest = await listing.runner.look(listing.questions, first.more)

    assert first.seen.keys() | rest.seen.keys() == set(range(FEW))
    assert first.more
    assert not rest.more


async def test_no_more_are_asked_about_than_one_call_takes(listing: Listing) -> None:
    batch = listing.runner.batch(listing.questions[0])
    assert batch is not None

    many = [*listing.questions, *[await listing.start(Plot.RUNS_ON, f"il-x{n}") for n in range(10)]][: batch.size_max]

    assert len((await listing.runner.look(many)).seen) == min(batch.size_max, FEW + 10)


@pytest.mark.parametrize(("code", "is_down"), [("ThrottlingException", True), ("AccessDeniedException", False)])
async def test_a_list_that_is_refused_says_whether_the_target_is_to_be_spared(
    code: str, is_down: bool, listing: Listing
) -> None:
    listing.target.fake.decline_next(listing.call, code)

    with pytest.raises(RetryLater, match=code) as problem:
        await listing.runner.look(listing.questions)

    assert isinstance(problem.value, TargetDown) == is_down


async def test_an_express_workflow_is_in_no_list() -> None:
    async with aws_target("step-function") as target:
        runner = target.runner()
        assert isinstance(runner, BatchRunner)
        express = {"runId": "arn:aws:states:eu-west-1:123456789012:express:etl:il-1:0"}

        assert runner.batch(Question(express, CONFIGS["step-function"])) is None
