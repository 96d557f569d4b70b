"""Secrets of AWS Secrets Manager: read once, kept for a while, read anew when a target refuses them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import AwsError, AwsFake, an_aws_fake, aws_at, raw_answer
from tests.support.fakes.http_target import reset
from worker.core.errors import Rejected, RetryLater
from worker.jobs.aws.secrets_manager import KEPT_MAX, SecretsManagerSecrets

NAME = "secretsmanager://prod/api"


@dataclass(slots=True)
class Place:
    fake: AwsFake
    clock: ManualClock
    secrets: SecretsManagerSecrets
    kept: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked["SecretId"] not in self.kept:
            raise AwsError("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
        return {"Name": asked["SecretId"], "SecretString": self.kept[asked["SecretId"]]}

    @property
    def reads(self) -> int:
        return self.fake.counted["GetSecretValue"]


@pytest.fixture
async def place() -> AsyncGenerator[Place]:
    async with an_aws_fake() as fake, aws_at(fake.url) as aws:
        clock = ManualClock()
        place = Place(fake, clock, SecretsManagerSecrets(aws, clock), {"prod/api": '{"token": "t1", "port": 5432}'})
        fake.serve("secretsmanager", GetSecretValue=place.get)
        yield place


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (NAME, '{"token": "t1", "port": 5432}'),
        (f"{NAME}#token", "t1"),
        (f"{NAME}#port", "5432"),
        (f"{NAME}#nothing", None),
        ("secretsmanager://prod/nothing#token", None),
    ],
)
async def test_a_secret_is_its_text_or_one_member_of_it(place: Place, name: str, value: str | None) -> None:
    assert await place.secrets.read(name) == value


@pytest.mark.parametrize("text", ["plain", "[1]", '{"token": null}', '{"token": {"a": 1}}', "[" * 20_000])
async def test_a_member_of_a_secret_that_has_none_is_not_there(place: Place, text: str) -> None:
    place.kept["prod/api"] = text

    assert await place.secrets.read(f"{NAME}#token") is None


async def test_those_who_need_a_secret_together_read_it_once(place: Place) -> None:
    async with asyncio.TaskGroup() as readers:
        reading = [readers.create_task(place.secrets.read(f"{NAME}#token")) for _ in range(20)]

    assert {task.result() for task in reading} == {"t1"}
    assert place.reads == 1


async def test_a_secret_is_read_again_after_a_while(place: Place) -> None:
    await place.secrets.read(NAME)
    place.clock.advance(timedelta(minutes=4))
    await place.secrets.read(NAME)
    assert place.reads == 1

    place.clock.advance(timedelta(minutes=1))
    await place.secrets.read(NAME)

    assert place.reads == 2


async def test_a_secret_that_was_missing_is_looked_for_again_soon(place: Place) -> None:
    missing = await place.secrets.read("secretsmanager://prod/late")
    place.kept["prod/late"] = "made"
    place.clock.advance(timedelta(seconds=30))

    assert missing is None
    assert await place.secrets.read("secretsmanager://prod/late") == "made"


async def test_a_refused_secret_is_read_anew_so_a_rotation_is_taken_up_at_once(place: Place) -> None:
    await place.secrets.read(f"{NAME}#token")
    place.kept["prod/api"] = '{"token": "t2"}'
    place.clock.advance(timedelta(minutes=1))

    assert place.secrets.forget(f"{NAME}#token")
    assert await place.secrets.read(f"{NAME}#token") == "t2"


async def test_a_secret_that_was_read_just_now_is_not_read_again_for_every_refusal(place: Place) -> None:
    await place.secrets.read(NAME)

    assert not place.secrets.forget(NAME)
    assert not place.secrets.forget("secretsmanager://never-read")
    await place.secrets.read(NAME)
    assert place.reads == 1


async def test_only_so_many_secrets_are_kept(place: Place) -> None:
    place.kept |= {f"s{number}": "x" for number in range(KEPT_MAX)}
    await place.secrets.read(NAME)
    for number in range(KEPT_MAX):
        await place.secrets.read(f"secretsmanager://s{number}")

    await place.secrets.read(NAME)

    assert place.reads == KEPT_MAX + 2


async def test_a_secret_the_worker_may_not_read_says_what_to_allow(place: Place) -> None:
    place.fake.decline_next("GetSecretValue", "AccessDeniedException", "not authorized")

    with pytest.raises(Rejected, match="secretsmanager:GetSecretValue"):
        await place.secrets.read(NAME)


async def test_a_secret_of_bytes_is_refused(place: Place) -> None:
    place.fake.break_next("GetSecretValue", raw_answer(200, {"SecretBinary": "AAAA"}))

    with pytest.raises(Rejected, match="holds no text"):
        await place.secrets.read(NAME)


async def test_a_secret_that_cannot_be_read_now_is_tried_again(place: Place) -> None:
    for behaviour in (raw_answer(400, {"__type": "ThrottlingException"}), raw_answer(500), reset):
        place.fake.break_next("GetSecretValue", behaviour)
        with pytest.raises(RetryLater):
            await place.secrets.read(NAME)

    assert await place.secrets.read(f"{NAME}#token") == "t1"
