"""Glue: what a run is told, how it is found, and when its success is believed."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import date, timedelta

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import AwsFake, an_aws_fake, aws_at, raw_answer
from tests.support.fakes.aws_jobs import ENDED, NOW, Glue, Logs
from tests.support.fakes.http_target import Behaviour, hang, reset
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.glue import GlueRunner
from worker.jobs.aws.glue_logs import GlueLogs, Signs
from worker.jobs.aws.glue_retries import RETRIED_WITHIN
from worker.jobs.runner import (
    Config,
    Failed,
    Handle,
    JobStatus,
    Running,
    StatusQuery,
    StopAccepted,
    Stopped,
    Succeeded,
)

CONFIG: dict[str, Json] = {"jobName": "etl"}
RUN = "jr_1"
INSIGHTS = f"{RUN}-job-insights-rca-driver"
ANALYSED = '{"Event":"GlueExceptionAnalysisJobFailed","Failure Reason":"Column \\"id\\" not found"}'


@dataclass(frozen=True, slots=True)
class Place:
    fake: AwsFake
    glue: Glue
    logs: Logs
    runner: GlueRunner
    clock: ManualClock

    async def finished(self, config: Config = CONFIG) -> JobStatus:
        """The status of a run that Glue reports as succeeded."""
        self.glue.begins_as = "SUCCEEDED"
        return await self.runner.status(await started(self.runner, config), config)


@pytest.fixture
async def place() -> AsyncGenerator[Place]:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        clock = ManualClock(NOW)
        yield Place(fake, Glue(fake, "RUNNING").open(), Logs(fake), GlueRunner(aws, clock), clock)


# --- the start --------------------------------------------------------------------------------------------------------


async def test_a_run_is_told_its_day_and_its_token_whatever_the_pipeline_says(place: Place) -> None:
    config: Config = {**CONFIG, "arguments": {"--table": "orders", "--par_day": "19700101"}}

    await place.runner.start(a_request(config))

    [asked] = place.fake.asked("StartJobRun")
    assert asked == {
        "JobName": "etl",
        "Arguments": {"--table": "orders", "--par_day": "20260303", "--interlock_token": TOKEN},
    }


async def test_an_hourly_run_is_told_its_hour_too(place: Place) -> None:
    await place.runner.start(a_request(CONFIG, period=Period(date(2026, 3, 3), 23)))

    [asked] = place.fake.asked("StartJobRun")
    assert (asked["Arguments"]["--par_day"], asked["Arguments"]["--par_hour"]) == ("20260303", "23")


async def test_capacity_and_limits_of_a_run_are_passed_on(place: Place) -> None:
    config: Config = {
        **CONFIG,
        "workerType": "G.1X",
        "numberOfWorkers": 4,
        "executionClass": "FLEX",
        "timeoutMinutes": 90,
    }

    await place.runner.start(a_request(config))

    [asked] = place.fake.asked("StartJobRun")
    given = {name: asked[name] for name in ("WorkerType", "NumberOfWorkers", "ExecutionClass", "Timeout")}
    assert given == {"WorkerType": "G.1X", "NumberOfWorkers": 4, "ExecutionClass": "FLEX", "Timeout": 90}


# --- finding ----------------------------------------------------------------------------------------------------------


async def test_a_run_is_found_behind_many_newer_ones(place: Place) -> None:
    await started(place.runner, CONFIG)
    for number in range(120):
        await started(place.runner, CONFIG, token=f"il-{number}")

    assert await place.runner.find(TOKEN, CONFIG) == {"jobName": "etl", "runId": RUN}
    assert place.fake.counted["GetJobRuns"] == 3


async def test_a_search_that_did_not_see_all_that_is_new_does_not_say_that_there_is_no_run(place: Place) -> None:
    """It would be started a second time."""
    place.glue.page_size = 1
    await started(place.runner, CONFIG)
    for number in range(12):
        await started(place.runner, CONFIG, token=f"il-{number}")

    with pytest.raises(AwsTrouble, match="the list goes on after 10 pages"):
        await place.runner.find(TOKEN, CONFIG)


async def test_the_search_ends_at_runs_that_are_older_than_any_lost_start(place: Place) -> None:
    place.glue.now = NOW - timedelta(days=3)
    for number in range(120):
        await started(place.runner, CONFIG, token=f"il-{number}")

    assert await place.runner.find(TOKEN, CONFIG) is None
    assert place.fake.counted["GetJobRuns"] == 1


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_failure_keeps_glues_own_words_and_time(place: Place) -> None:
    place.glue.begins_as, place.glue.message = "FAILED", "Command failed with exit code 1"

    status = await place.runner.status(await started(place.runner, CONFIG), CONFIG)

    assert status == Failed(FailureCategory.TRANSIENT, "FAILED: Command failed with exit code 1", ENDED)


async def test_a_stop_of_a_run_that_is_over_needs_nothing(place: Place) -> None:
    place.glue.begins_as = "FAILED"

    assert await place.runner.stop(await started(place.runner, CONFIG), CONFIG) == Stopped()


# --- Glue's own retries -----------------------------------------------------------------------------------------------


async def a_failed_run(place: Place, max_retries: int = 1) -> Handle:
    place.glue.max_retries = max_retries
    handle = await started(place.runner, CONFIG)
    place.glue.jobs[-1].state = "FAILED"
    place.clock.advance(ENDED - NOW)
    return handle


@pytest.mark.parametrize("state", ["FAILED", "ERROR"])
async def test_a_run_that_glue_tries_again_is_still_running(place: Place, state: str) -> None:
    handle = await a_failed_run(place)
    place.glue.jobs[-1].state = state
    place.glue.retry()
    place.clock.advance(timedelta(hours=3))

    assert isinstance(await place.runner.status(handle, CONFIG), Running)


async def test_a_run_that_glue_is_about_to_try_again_is_still_running(place: Place) -> None:
    handle = await a_failed_run(place)

    assert isinstance(await place.runner.status(handle, CONFIG), Running)


async def test_a_retry_that_does_not_come_is_not_waited_for_for_ever(place: Place) -> None:
    handle = await a_failed_run(place)
    place.clock.advance(RETRIED_WITHIN)

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)


@pytest.mark.parametrize("retries", [1, 3])
async def test_the_last_retry_decides(place: Place, retries: int) -> None:
    handle = await a_failed_run(place, retries)
    for _ in range(retries):
        place.glue.retry().state = "FAILED"

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)
    assert place.fake.counted["GetJobRuns"] == 1

    place.glue.jobs[-1].state = "SUCCEEDED"
    assert await place.runner.status(handle, CONFIG) == Succeeded(ENDED)


async def test_the_success_of_a_retry_is_checked_by_its_own_log(place: Place) -> None:
    handle = await a_failed_run(place)
    place.glue.retry("SUCCEEDED")
    place.logs.streams[f"{RUN}_attempt_1-job-insights-rca-driver"] = [ANALYSED]

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)


@pytest.mark.parametrize("state", ["STOPPED", "TIMEOUT", "EXPIRED"])
async def test_what_glue_does_not_try_again_is_final_at_once(place: Place, state: str) -> None:
    handle = await a_failed_run(place)
    place.glue.jobs[-1].state = state

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)
    assert place.fake.counted["GetJob"] == 0


async def test_without_retries_of_its_own_a_failure_is_final_at_once(place: Place) -> None:
    handle = await a_failed_run(place, 0)

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)
    assert place.fake.counted["GetJobRuns"] == 0


async def test_where_the_number_of_retries_may_not_be_read_one_is_waited_for(place: Place) -> None:
    handle = await a_failed_run(place, 0)
    for _ in range(2):
        place.fake.decline_next("GetJob", "AccessDeniedException", "not authorized")

    assert isinstance(await place.runner.status(handle, CONFIG), Running)
    place.clock.advance(RETRIED_WITHIN)
    status = await place.runner.status(handle, CONFIG)
    assert isinstance(status, Failed)
    assert "glue:GetJob" in status.message


async def test_a_job_that_was_deleted_is_not_tried_again(place: Place) -> None:
    handle = await a_failed_run(place)
    place.fake.decline_next("GetJob", "EntityNotFoundException", "no such job")

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)


async def test_a_service_that_does_not_answer_makes_no_failure_final(place: Place) -> None:
    handle = await a_failed_run(place)
    place.fake.break_next("GetJob", raw_answer(500))

    with pytest.raises(AwsTrouble):
        await place.runner.status(handle, CONFIG)


async def test_a_run_of_another_start_is_no_retry(place: Place) -> None:
    handle = await a_failed_run(place)
    await started(place.runner, CONFIG, token="il-other")
    place.clock.advance(RETRIED_WITHIN)

    assert isinstance(await place.runner.status(handle, CONFIG), Failed)


async def test_a_stop_reaches_the_retry_that_runs(place: Place) -> None:
    handle = await a_failed_run(place)
    retried = place.glue.retry()

    assert await place.runner.stop(handle, CONFIG) == StopAccepted()

    assert retried.state == "STOPPED"
    assert await place.runner.stop(handle, CONFIG) == Stopped()


async def test_a_stop_before_the_retry_has_come_waits_for_it(place: Place) -> None:
    handle = await a_failed_run(place)
    assert await place.runner.stop(handle, CONFIG) == StopAccepted()

    retried = place.glue.retry()
    assert await place.runner.stop(handle, CONFIG) == StopAccepted()

    assert retried.state == "STOPPED"


async def test_a_look_at_many_runs_makes_no_failure_final_that_glue_may_try_again(place: Place) -> None:
    handle = await a_failed_run(place)
    question = StatusQuery(handle, CONFIG)

    assert (await place.runner.look([question])).seen == {}
    place.glue.retry()
    assert (await place.runner.look([question])).seen == {0: Running("RUNNING")}
    place.glue.jobs[-1].state = "SUCCEEDED"
    assert (await place.runner.look([question])).seen == {}


async def test_a_lost_start_whose_run_glue_tried_again_is_followed_from_any_of_them(place: Place) -> None:
    await a_failed_run(place)
    place.glue.retry()

    found = await place.runner.find(TOKEN, CONFIG)

    assert found is not None
    assert isinstance(await place.runner.status(found, CONFIG), Running)


# --- false successes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (ANALYSED, 'SUCCEEDED (RCA: Column "id" not found)'),
        ('{"Event":"GlueExceptionAnalysisJobFailed"}', "SUCCEEDED (RCA: JobFailed)"),
    ],
)
async def test_glues_own_analysis_unmasks_a_false_success(place: Place, line: str, message: str) -> None:
    place.logs.streams[INSIGHTS] = ["starting", line]

    assert await place.finished() == Failed(FailureCategory.TRANSIENT, message, ENDED)


async def test_a_sign_is_found_behind_empty_pages(place: Place) -> None:
    place.logs.streams[INSIGHTS], place.logs.empty_pages = [ANALYSED], 5

    assert isinstance(await place.finished(), Failed)


async def test_a_chatty_log_is_no_failure(place: Place) -> None:
    place.logs.streams[RUN] = ["10:00:01 ERROR retrying", "10:00:02 FATAL-looking but fine"] * 100
    place.logs.streams[INSIGHTS] = ["nothing failed"]

    assert await place.finished() == Succeeded(ENDED)


async def test_a_sign_that_the_pipeline_names_is_a_failure(place: Place) -> None:
    place.logs.streams[RUN] = ["2026-01-15 10:00:00,000 FATAL org.example.Job: boom"]
    config: Config = {**CONFIG, "failureSignals": [" ERROR ", " FATAL "]}

    status = await place.finished(config)

    assert isinstance(status, Failed)
    assert status.message == "SUCCEEDED (driver log: 2026-01-15 10:00:00,000 FATAL org.example.Job: boom)"


async def test_a_sign_with_its_spaces_is_not_found_inside_a_word(place: Place) -> None:
    place.logs.streams[RUN] = ["NO_FATAL_ERRORS"]

    assert await place.finished({**CONFIG, "failureSignals": [" FATAL "]}) == Succeeded(ENDED)


async def test_a_job_without_insights_and_without_signs_is_believed(place: Place) -> None:
    assert await place.finished() == Succeeded(ENDED)


async def test_no_log_is_read_where_the_check_is_switched_off(place: Place) -> None:
    place.logs.streams[INSIGHTS] = [ANALYSED]

    assert await place.finished({**CONFIG, "successCheck": False}) == Succeeded(ENDED)
    assert place.fake.counted["FilterLogEvents"] == 0


async def test_the_runs_own_log_group_is_read(place: Place) -> None:
    place.glue.log_group = "/aws-glue/jobs/own"

    await place.finished()

    assert [asked["logGroupName"] for asked in place.fake.asked("FilterLogEvents")] == ["/aws-glue/jobs/own"]


@pytest.mark.parametrize(
    "trouble",
    [
        raw_answer(400, {"__type": "AccessDeniedException", "message": "not authorized"}),
        raw_answer(400, {"__type": "ThrottlingException"}),
        raw_answer(500),
        raw_answer(200, "[]"),
        reset,
    ],
)
async def test_a_log_that_cannot_be_read_is_told_and_the_success_stands(place: Place, trouble: Behaviour) -> None:
    place.fake.break_next("FilterLogEvents", trouble)

    status = await place.finished()

    assert isinstance(status, Succeeded)
    assert status.ended_at == ENDED
    [notice] = status.notices
    assert notice.startswith("the success of jr_1 was not checked: logs FilterLogEvents: ")


async def test_a_log_that_may_not_be_read_says_what_to_allow(place: Place) -> None:
    place.fake.decline_next("FilterLogEvents", "AccessDeniedException", "not authorized")

    status = await place.finished()

    assert isinstance(status, Succeeded)
    assert "allow the worker logs:FilterLogEvents on /aws-glue/jobs/logs-v2" in status.notices[0]


async def test_a_log_the_pipeline_wants_read_and_that_is_not_there_is_told(place: Place) -> None:
    status = await place.finished({**CONFIG, "failureSignals": ["FATAL"]})

    assert isinstance(status, Succeeded)
    assert len(status.notices) == 1


async def test_a_log_too_long_to_be_searched_is_told(place: Place) -> None:
    place.logs.streams[INSIGHTS], place.logs.empty_pages = [ANALYSED], 50

    status = await place.finished()

    assert isinstance(status, Succeeded)
    assert "too long to be searched" in status.notices[0]
    assert place.fake.counted["FilterLogEvents"] == 10


async def test_the_time_of_all_searches_together_is_bounded() -> None:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        fake.break_next("FilterLogEvents", hang)

        status = await GlueLogs(aws, check_s=0.5).confirm(Succeeded(ENDED), Signs(run_id=RUN))

    assert isinstance(status, Succeeded)
    assert "could not be searched in 0.5 s" in status.notices[0]


async def test_a_log_service_that_hangs_does_not_hold_up_the_success() -> None:
    async with an_aws_fake() as fake, aws_at(fake.url, answer_s=1.0) as aws:
        Glue(fake, "SUCCEEDED").open()
        fake.break_next("FilterLogEvents", hang)
        runner = GlueRunner(aws, ManualClock(NOW))

        status = await runner.status(await started(runner, CONFIG), CONFIG)

    assert isinstance(status, Succeeded)
    assert "no answer in time" in status.notices[0]
