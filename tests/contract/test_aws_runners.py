"""What the AWS runners keep when AWS does not: refusals, silence, broken and senseless answers, on all five."""

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.fakes.aws import an_aws_fake, aws_at, raw_answer
from tests.support.fakes.aws_targets import CONFIGS, AwsTarget, aws_target, runner_of
from tests.support.fakes.http_target import Behaviour, break_off, hang, reset
from tests.support.fakes.job_targets import Plot
from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.aws.session import ANSWER_BYTES_MAX
from worker.jobs.runner import CannotStop, Guarantee, Handle, Refused, Started, StopAccepted, Unknown

KINDS = tuple(CONFIGS)
KEEPING = tuple(kind for kind in KINDS if kind != "lambda")
START = {
    "glue": "StartJobRun",
    "emr": "AddJobFlowSteps",
    "emr-serverless": "StartJobRun",
    "step-function": "StartExecution",
    "lambda": "Invoke",
}
STATUS = {
    "glue": "GetJobRun",
    "emr": "DescribeStep",
    "emr-serverless": "GetJobRun",
    "step-function": "DescribeExecution",
}
FIND = {"glue": "GetJobRuns", "emr": "ListSteps", "emr-serverless": "ListJobRuns", "step-function": "DescribeExecution"}
STOP = {
    "glue": "BatchStopJobRun",
    "emr": "CancelSteps",
    "emr-serverless": "CancelJobRun",
    "step-function": "StopExecution",
}

PERMANENT, TRANSIENT = FailureCategory.PERMANENT, FailureCategory.TRANSIENT
# Status and code of an answer, and what it makes of a start; None: the job may exist.
ANSWERS: list[tuple[int, str, FailureCategory | None]] = [
    (400, "InvalidInputException", PERMANENT),
    (401, "UnrecognizedClientException", TRANSIENT),
    (403, "InvalidSignatureException", TRANSIENT),
    (403, "RequestTimeTooSkewed", TRANSIENT),
    (403, "RequestInTheFuture", TRANSIENT),
    (403, "AccessDeniedException", PERMANENT),
    (404, "ResourceNotFoundException", PERMANENT),
    (409, "ConflictException", PERMANENT),
    (413, "RequestTooLargeException", PERMANENT),
    (400, "ThrottlingException", TRANSIENT),
    (429, "TooManyRequestsException", TRANSIENT),
    (400, "ConcurrentRunsExceededException", TRANSIENT),
    (402, "ServiceQuotaExceededException", TRANSIENT),
    (403, "ExpiredTokenException", TRANSIENT),
    (502, "EC2ThrottledException", TRANSIENT),
    (408, "RequestTimeoutException", None),
    (400, "OperationTimeoutException", None),
    (400, "InternalServiceException", None),
    (500, "InternalFailure", None),
    (502, "BadGateway", None),
    (503, "ServiceUnavailable", None),
]
MALFORMED: list[str] = ["", "not json", "[]", '"text"', "null", "{", "{}", "[" * 20_000]
NO_USABLE_ANSWER: list[Behaviour] = [
    *(raw_answer(status, {"__type": code}) for status, code, _ in ANSWERS),
    *(raw_answer(200, body) for body in MALFORMED),
    reset,
    break_off(200),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_answer_to_a_start_says_whether_the_job_can_exist(kind: str) -> None:
    async with aws_target(kind) as target:
        runner, config = target.runner(), target.job(Plot.SUCCEEDS)
        for status, code, category in ANSWERS:
            target.fake.break_next(START[kind], raw_answer(status, {"__type": code, "message": "its own words"}))

            answer = await runner.start(a_request(config))

            if category is None:
                assert isinstance(answer, Unknown), (status, code, answer)
            else:
                assert isinstance(answer, Refused), (status, code, answer)
                assert answer.category is category, (status, code)
            assert "its own words" in answer.message
        assert target.begun() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_start_whose_answer_broke_is_unknown_and_was_sent_once(kind: str) -> None:
    async with aws_target(kind) as target:
        runner, config = target.runner(), target.job(Plot.SUCCEEDS)
        for break_it in (reset, break_off(200)):
            target.fake.break_next(START[kind], break_it)

            assert isinstance(await runner.start(a_request(config)), Unknown)

        assert target.fake.counted[START[kind]] == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_start_that_is_not_answered_in_time_is_unknown(kind: str) -> None:
    async with an_aws_fake() as fake, aws_at(fake.url, answer_s=2.0) as aws:
        runner = runner_of(kind, aws)
        config = {**CONFIGS[kind], **({"timeout": 2} if kind == "lambda" else {})}
        await runner.start(a_request(config))  # the first loads much, for which a busy machine may take the whole limit
        fake.break_next(START[kind], hang)

        answer = await runner.start(a_request(config))

    assert isinstance(answer, Unknown)
    assert "no answer in time" in answer.message


@pytest.mark.parametrize("kind", KINDS)
async def test_a_start_that_never_left_is_refused(kind: str) -> None:
    async with aws_at("http://127.0.0.1:1") as aws:
        answer = await runner_of(kind, aws).start(a_request(CONFIGS[kind]))

    assert isinstance(answer, Refused)
    assert answer.category is TRANSIENT
    assert "nothing was sent" in answer.message


@pytest.mark.parametrize("kind", KEEPING)
async def test_an_accepted_start_without_a_usable_id_is_unknown(kind: str) -> None:
    async with aws_target(kind) as target:
        runner, config = target.runner(), target.job(Plot.SUCCEEDS)
        for body in MALFORMED:
            target.fake.break_next(START[kind], raw_answer(200, body))

            assert isinstance(await runner.start(a_request(config)), Unknown), body


@pytest.mark.parametrize("kind", KEEPING)
async def test_a_job_whose_answer_was_lost_is_found_and_not_started_again(kind: str) -> None:
    async with aws_target(kind) as target:
        config = target.job(Plot.RUNS_ON)
        target.fake.break_next(START[kind], reset, is_carried_out=True)

        assert isinstance(await target.runner().start(a_request(config)), Unknown)
        found = await target.runner().find(TOKEN, config)

        assert found
        if target.runner().traits(config).guarantee is Guarantee.EXACTLY_ONCE:
            assert await target.runner().start(a_request(config)) == Started(found)
        assert target.begun() == 1


@pytest.mark.parametrize("kind", KEEPING)
async def test_a_status_without_a_usable_answer_is_asked_for_again(kind: str) -> None:
    async with aws_target(kind) as target:
        runner, config = target.runner(), target.job(Plot.RUNS_ON)
        handle = await started(runner, config)
        for behaviour in NO_USABLE_ANSWER:
            target.fake.break_next(STATUS[kind], behaviour)

            with pytest.raises(RetryLater):
                await runner.status(handle, config)


@pytest.mark.parametrize("kind", KEEPING)
async def test_a_search_that_fails_finds_neither_something_nor_nothing(kind: str) -> None:
    async with aws_target(kind) as target:
        runner, config = target.runner(), target.job(Plot.RUNS_ON)
        for behaviour in (raw_answer(403, {"__type": "AccessDeniedException"}), raw_answer(500), reset, break_off(200)):
            target.fake.break_next(FIND[kind], behaviour)

            with pytest.raises(RetryLater):
                await runner.find(TOKEN, config)


async def _stopped(target: AwsTarget, handle: Handle, behaviour: Behaviour) -> object:
    target.fake.break_next(STOP[target.kind], behaviour)
    return await target.runner().stop(handle, CONFIGS[target.kind])


@pytest.mark.parametrize("kind", KEEPING)
async def test_a_stop_that_is_not_allowed_cannot_be_and_one_that_got_lost_is_told_again(kind: str) -> None:
    async with aws_target(kind) as target:
        handle = await started(target.runner(), target.job(Plot.RUNS_ON))

        denied = await _stopped(target, handle, raw_answer(403, {"__type": "AccessDeniedException"}))
        assert isinstance(denied, CannotStop)
        for behaviour in (raw_answer(400, {"__type": "ThrottlingException"}), raw_answer(500), reset):
            with pytest.raises(RetryLater):
                await _stopped(target, handle, behaviour)


@pytest.mark.parametrize(
    ("kind", "state"), [("glue", "STOPPING"), ("emr", "CANCEL_PENDING"), ("emr-serverless", "CANCELLING")]
)
async def test_a_second_stop_that_is_refused_because_the_job_is_stopping_is_waited_for(kind: str, state: str) -> None:
    async with aws_target(kind) as target:
        handle = await started(target.runner(), target.job(Plot.RUNS_ON))
        target.service.jobs[0].state = state
        refusal = raw_answer(400, {"__type": "ValidationException", "message": f"it is {state}"})

        assert await _stopped(target, handle, refusal) == StopAccepted()


async def test_an_answer_of_any_length_is_read_up_to_a_limit() -> None:
    async with aws_target("glue") as target:
        runner, config = target.runner(), target.job(Plot.RUNS_ON)
        handle = await started(runner, config)
        target.fake.break_next("GetJobRun", raw_answer(200, b" " * (ANSWER_BYTES_MAX + 1)))

        with pytest.raises(RetryLater, match="longer than"):
            await runner.status(handle, config)
