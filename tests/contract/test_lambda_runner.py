"""Lambda: functions that are waited for, and functions that report their end by a sensor."""

import base64
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.support.builders.runners import TOKEN, a_request, started
from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import AwsFake, an_aws_fake, aws_at
from tests.support.fakes.aws_jobs import NOW, Lambda
from tests.support.fakes.aws_model import model_of
from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import NOT_SET_UP, TURNED_AWAY, UNDECIDED
from worker.jobs.aws.lambda_ import LambdaRunner
from worker.jobs.runner import CannotStop, Config, Failed, Guarantee, Refused, Running, Stopped, Succeeded, Unknown
from worker.jobs.secrets import EnvironmentSecrets, SecretSource
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

CONFIG: dict[str, Json] = {"functionName": "etl"}
EVENT: dict[str, Json] = {**CONFIG, "invocationType": "Event", "resultSensor": "etl-done"}
ABOUT = {
    "token": TOKEN, "pipeline": "orders", "schedule": "cron", "period": "2026-03-03", "runId": "run-1", "attempt": 2,
    "par_day": "20260303", "par_hour": "",
}  # fmt: skip
REQUEST_ID = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True, slots=True)
class Place:
    fake: AwsFake
    function: Lambda
    sensors: Sensors
    aws: Aws

    def runner(self, secrets: SecretSource | None = None) -> LambdaRunner:
        kept = secrets or EnvironmentSecrets({"INTERLOCK_KEY": 'hunter"22'})
        return LambdaRunner(self.aws, ManualClock(NOW), kept, self.sensors)

    async def payload(self, config: Config) -> Json:
        await self.runner().start(a_request(config))
        return json.loads(self.fake.asked("Invoke")[-1]["Payload"])

    async def report(self, key: str = "etl-done", /, **data: Json) -> None:
        await self.sensors.put(PipelineId("orders"), key, data)


@pytest.fixture
async def place() -> AsyncGenerator[Place]:
    tables = SqliteTables.in_memory(ManualClock(NOW))
    await tables.start()
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        yield Place(fake, Lambda(fake, "{}").open(), Sensors(tables), aws)
    await tables.stop()


# --- what a function is given -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "payload"),
    [
        ({}, {"interlock": ABOUT}),
        ({"payload": {"n": [1, "${INTERLOCK_KEY}"]}}, {"n": [1, 'hunter"22'], "interlock": ABOUT}),
        ({"payload": '{"k": "$INTERLOCK_KEY"}'}, {"k": 'hunter"22', "interlock": ABOUT}),
        ({"payload": {"a": "1"}, "arguments": {"a": "2", "b": "3"}}, {"a": "2", "b": "3", "interlock": ABOUT}),
        ({"payload": "[1, 2]"}, [1, 2]),
    ],
)
async def test_a_function_gets_its_payload_and_is_told_what_it_is_for(
    place: Place, config: dict[str, Json], payload: Json
) -> None:
    assert await place.payload({**CONFIG, **config}) == payload


async def test_a_function_that_is_waited_for_has_the_token_in_its_client_context(place: Place) -> None:
    await place.runner().start(a_request({**CONFIG, "qualifier": "PROD"}))

    [asked] = place.fake.asked("Invoke")
    assert json.loads(base64.b64decode(asked["ClientContext"])) == {"custom": {"interlock_token": TOKEN}}
    assert (asked["InvocationType"], asked["Qualifier"]) == ("RequestResponse", "PROD")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"payload": "not json"}, "neither a mapping nor JSON"),
        ({"payload": "[1]", "arguments": {"a": "b"}}, "a payload that is a mapping"),
        ({"payload": {"x": "x" * 7_000_000}}, "longer than 6291456 bytes"),
        ({**EVENT, "payload": {"x": "x" * 1_100_000}}, "longer than 1048576 bytes"),
        ({"payload": "${INTERLOCK_TYPO}"}, "INTERLOCK_TYPO"),
        ({"invocationType": "Event"}, "resultSensor"),
    ],
)
async def test_a_payload_that_cannot_be_sent_is_refused_for_good(
    place: Place, config: dict[str, Json], problem: str
) -> None:
    answer = await place.runner().start(a_request({**CONFIG, **config}))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT
    assert problem in answer.message
    assert place.fake.calls == []


class Unreachable:
    """A keeper of secrets that cannot be asked."""

    async def read(self, name: str) -> str | None:
        raise RetryLater(f"{name} cannot be read now")

    def forget(self, name: str) -> bool:
        raise NotImplementedError(name)


async def test_a_function_whose_secret_cannot_be_read_now_is_certainly_not_called(place: Place) -> None:
    config: Config = {**CONFIG, "payload": {"k": "${INTERLOCK_KEY}"}}

    answer = await place.runner(Unreachable()).start(a_request(config))

    assert answer == Refused(FailureCategory.TRANSIENT, "INTERLOCK_KEY cannot be read now")
    assert place.fake.calls == []


# --- functions that are waited for ------------------------------------------------------------------------------------


async def test_a_function_that_returned_has_succeeded_and_names_its_request(place: Place) -> None:
    handle = await started(place.runner(), CONFIG)

    assert handle["runId"] == REQUEST_ID
    assert await place.runner().status(handle, CONFIG) == Succeeded(NOW)


@pytest.mark.parametrize(
    ("payload", "category", "message"),
    [
        ('{"errorType": "KeyError", "errorMessage": "day"}', FailureCategory.TRANSIENT, "KeyError: day"),
        (
            '{"errorMessage": "2026-03-03T06:00:00Z Task timed out after 3.00 seconds"}',
            FailureCategory.TIMEOUT,
            "Task timed out after 3.00 seconds",
        ),
        (
            '{"errorType": "Runtime.ImportModuleError", "errorMessage": "no module named x"}',
            FailureCategory.PERMANENT,
            "Runtime.ImportModuleError: no module named x",
        ),
        ("{}", FailureCategory.TRANSIENT, "no message"),
        ("[" * 20_000, FailureCategory.TRANSIENT, "[[["),
        ("not json", FailureCategory.TRANSIENT, "not json"),
        ('{"errorMessage": "key hunter\\"22 refused"}', FailureCategory.TRANSIENT, "key *** refused"),
    ],
)
async def test_a_function_that_raised_has_failed(
    place: Place, payload: str, category: FailureCategory, message: str
) -> None:
    place.function.message = payload
    config: Config = {**CONFIG, "payload": {"k": "${INTERLOCK_KEY}"}}

    handle = await started(place.runner(), config)
    status = await place.runner().status(json.loads(json.dumps(handle)), config)

    assert isinstance(status, Failed)
    assert status.category is category
    assert message in status.message
    assert len(json.dumps(handle)) < 1500


async def test_nothing_more_is_claimed_than_at_least_once(place: Place) -> None:
    traits = place.runner().traits({**CONFIG, "timeout": 300})

    assert (traits.guarantee, traits.can_stop) == (Guarantee.AT_LEAST_ONCE, False)
    assert traits.send_timeout >= timedelta(seconds=300)
    assert await place.runner().find(TOKEN, CONFIG) is None


def test_an_error_whose_status_does_not_tell_whether_the_function_ran_is_judged_by_its_name() -> None:
    shapes = model_of("lambda").operation_model("Invoke").error_shapes
    statuses = {shape.name: shape.metadata["error"]["httpStatusCode"] for shape in shapes}

    unclear = {name for name, status in statuses.items() if status >= 500 or status in {408, 410}}

    assert unclear - (TURNED_AWAY | NOT_SET_UP | UNDECIDED) == set()


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("KMSDisabledException", FailureCategory.PERMANENT),
        ("EFSMountTimeoutException", FailureCategory.TRANSIENT),
        ("EFSIOException", None),
        ("ServiceException", None),
    ],
)
async def test_a_function_that_could_not_be_set_up_was_not_started(
    place: Place, code: str, answer: FailureCategory | None
) -> None:
    place.fake.decline_next("Invoke", code)

    found = await place.runner().start(a_request(CONFIG))

    assert isinstance(found, Unknown) if answer is None else isinstance(found, Refused) and found.category is answer


# --- functions that report by a sensor --------------------------------------------------------------------------------


async def test_a_function_that_was_handed_over_runs_until_its_sensor_says_otherwise(place: Place) -> None:
    handle = await started(place.runner(), EVENT)

    waiting = await place.runner().status(handle, EVENT)
    await place.report(token=TOKEN, status="succeeded")

    assert isinstance(waiting, Running)
    assert "etl-done" in waiting.message
    assert "ClientContext" not in place.fake.asked("Invoke")[0]
    outputs = {"result": {"status": "succeeded"}}
    assert await place.runner().status(handle, EVENT) == Succeeded(outputs=outputs)


@pytest.mark.parametrize(
    ("status", "category"), [("FAILED", FailureCategory.TRANSIENT), ("timed_out", FailureCategory.TIMEOUT)]
)
async def test_a_sensor_may_report_a_failure(place: Place, status: str, category: FailureCategory) -> None:
    handle = await started(place.runner(), EVENT)
    await place.report("etl-done#2026-03-03", token=TOKEN, status=status, message="disk full")

    found = await place.runner().status(handle, EVENT)

    assert isinstance(found, Failed)
    assert found.category is category
    assert "disk full" in found.message


@pytest.mark.parametrize(
    "data", [{"token": "il-other", "status": "succeeded"}, {"status": "succeeded"}, {"token": TOKEN}]
)
async def test_a_sensor_that_speaks_of_another_attempt_or_of_no_end_says_nothing(
    place: Place, data: dict[str, Json]
) -> None:
    handle = await started(place.runner(), EVENT)
    await place.report(**data)

    assert isinstance(await place.runner().status(handle, EVENT), Running)


async def test_an_invocation_cannot_be_stopped_unless_it_is_over(place: Place) -> None:
    handle = await started(place.runner(), EVENT)

    running = await place.runner().stop(handle, EVENT)
    await place.report(token=TOKEN, status="succeeded")

    assert isinstance(running, CannotStop)
    assert await place.runner().stop(handle, EVENT) == Stopped()
    assert await place.runner().stop(await started(place.runner(), CONFIG), CONFIG) == Stopped()


async def test_an_event_without_a_way_to_report_its_end_is_no_configuration(place: Place) -> None:
    with pytest.raises(Rejected, match="resultSensor"):
        place.runner().traits({**CONFIG, "invocationType": "Event"})
