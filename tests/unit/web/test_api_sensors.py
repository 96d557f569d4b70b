"""Sensors over HTTP: what is written, what is said about it, and what is refused."""

from decimal import Decimal

import httpx
import pytest

from tests.support.worlds.web import OPERATOR, WebWorld
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.store.repos.sensors import Sensors

PERIOD = "2027-03-22"
SENSORS = "/api/v1/sensors"


async def stored(world: WebWorld, key: str, pipeline: str = "orders") -> dict[str, Json] | None:
    found = await Sensors(world.tables).get(PipelineId(pipeline), key)
    return None if found is None else dict(found.data)


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:interlock:problem:")


async def post(world: WebWorld, path: str, **request: object) -> httpx.Response:
    async with world.client(OPERATOR) as client:
        return await client.post(f"{SENSORS}{path}", **request)  # pyright: ignore[reportArgumentType]


async def test_a_sensor_is_written_and_its_readers_are_named(world: WebWorld) -> None:
    response = await post(world, f"/orders/export?period={PERIOD}", json={"rows": 1200})

    assert response.status_code == 202
    assert response.json() == {
        "type": "sensor",
        "pipeline": "orders",
        "key": f"export#{PERIOD}",
        "readBy": ["orders"],
        "warnings": [],
    }
    assert await stored(world, f"export#{PERIOD}") == {"rows": 1200}


async def test_numbers_stay_exact(world: WebWorld) -> None:
    await post(world, "/orders/export", content=b'{"share": 0.1000000000000000000001, "rows": 12345678901234567890}')

    assert await stored(world, "export") == {"share": Decimal("0.1000000000000000000001"), "rows": 12345678901234567890}


@pytest.mark.parametrize(
    ("path", "warning"),
    [
        ("/orders/exprot", "nothing in orders reads exprot; did you mean"),
        ("/order/export", "there is no pipeline order in the store; did you mean"),
        ("/orders/ready?period=2020-01-01", "ready#2020-01-01 will begin no run"),
    ],
)
async def test_what_looks_like_a_mistake_is_written_with_a_warning(world: WebWorld, path: str, warning: str) -> None:
    response = await post(world, path, json={"status": "done"})

    assert response.status_code == 202
    assert warning in response.json()["warnings"][0]


async def test_a_key_with_a_slash_is_a_key(world: WebWorld) -> None:
    response = await post(world, "", json=[{"pipeline": "orders", "key": "s3/a/b", "data": {"x": 1}}])

    assert response.status_code == 202
    assert await stored(world, "s3/a/b") == {"x": 1}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000]
)
async def test_what_is_not_json_is_refused(world: WebWorld, body: bytes) -> None:
    response = await post(world, "/orders/export", content=body)

    assert problem(response) == (400, "bad-request")
    assert await stored(world, "export") is None


@pytest.mark.parametrize("body", ["[]", "1", "null", '"text"'])
async def test_a_sensor_that_is_not_an_object_is_refused(world: WebWorld, body: str) -> None:
    assert problem(await post(world, "/orders/export", content=body)) == (422, "invalid")


@pytest.mark.parametrize("period", ["tomorrow", "2027-13-01", "2027-03-22T99"])
async def test_a_period_that_is_none_is_refused(world: WebWorld, period: str) -> None:
    assert problem(await post(world, f"/orders/export?period={period}", json={})) == (422, "invalid")


@pytest.mark.parametrize("pipeline", ["..", "%2e%2e", "a b", "a%00b", "PIPELINE%23x", "x" * 65, "%F0%9F%92%A3"])
async def test_an_id_that_no_pipeline_can_have_is_refused(world: WebWorld, pipeline: str) -> None:
    response = await post(world, f"/{pipeline}/export", json={"rows": 1})

    assert response.status_code in {400, 404, 405}


@pytest.mark.parametrize("key", ["a%00b", "a%0ab", "x" * 513])
async def test_a_key_that_cannot_be_shown_is_refused(world: WebWorld, key: str) -> None:
    assert (await post(world, f"/orders/{key}", json={"rows": 1})).status_code in {400, 404, 422}


async def test_a_sensor_larger_than_a_row_is_refused(world: WebWorld) -> None:
    response = await post(world, "/orders/export", json={"text": "x" * 500_000})

    assert problem(response) == (422, "invalid")


# --- batches ----------------------------------------------------------------------------------------------------------


async def test_a_batch_is_written_in_order(world: WebWorld) -> None:
    batch: list[Json] = [{"pipeline": "orders", "key": f"k{number}", "data": {"n": number}} for number in range(500)]

    response = await post(world, "", json=batch)

    assert response.status_code == 202
    assert [item["key"] for item in response.json()["items"]] == [f"k{number}" for number in range(500)]
    assert await stored(world, "k499") == {"n": 499}


async def test_a_batch_with_errors_names_all_of_them_and_writes_nothing(world: WebWorld) -> None:
    good: Json = {"pipeline": "orders", "key": "good", "data": {}}
    bad: list[Json] = [
        {"pipeline": "orders", "key": "", "data": {}},
        {"pipeline": 7, "key": "a", "data": {}},
        {"pipeline": "orders", "key": "a", "data": []},
        {"pipeline": "orders", "key": "a", "data": {}, "periode": "2027-03-22"},
        {"pipeline": "orders", "key": "a", "data": {}, "period": "never"},
        "text",
        good,
    ]

    response = await post(world, "", json=[good, *bad])

    assert problem(response) == (422, "invalid")
    where = [error["where"] for error in response.json()["errors"]]
    assert where == ["1.key", "2.pipeline", "3.data", "4.periode", "5.period", "6", "7.key"]
    assert await stored(world, "good") is None


@pytest.mark.parametrize("size", [0, 501])
async def test_a_batch_of_the_wrong_size_is_refused(world: WebWorld, size: int) -> None:
    batch: list[Json] = [{"pipeline": "orders", "key": f"k{number}", "data": {}} for number in range(size)]

    assert problem(await post(world, "", json=batch)) == (422, "invalid")


# --- repeats ----------------------------------------------------------------------------------------------------------


async def test_a_repeat_with_its_key_writes_nothing_again(world: WebWorld) -> None:
    key = {"Idempotency-Key": "upload-42"}
    first = await post(world, "/orders/export", headers=key, json={"rows": 1})
    await post(world, "/orders/export", json={"rows": 2})

    again = await post(world, "/orders/export", headers=key, json={"rows": 1})

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert await stored(world, "export") == {"rows": 2}


async def test_a_key_that_was_used_for_another_request_is_refused(world: WebWorld) -> None:
    key = {"Idempotency-Key": "upload-42"}
    await post(world, "/orders/export", headers=key, json={"rows": 1})

    assert problem(await post(world, "/orders/export", headers=key, json={"rows": 2})) == (409, "conflict")
    assert await stored(world, "export") == {"rows": 1}


async def test_a_batch_can_be_repeated_too(world: WebWorld) -> None:
    batch: list[Json] = [
        {"pipeline": "orders", "key": "a", "data": {"n": 1}},
        {"pipeline": "other", "key": "b", "data": {}},
    ]
    await post(world, "", headers={"Idempotency-Key": "b1"}, json=batch)
    response = await post(world, "", headers={"Idempotency-Key": "b1"}, json=batch)

    assert response.headers["idempotency-replayed"] == "true"
