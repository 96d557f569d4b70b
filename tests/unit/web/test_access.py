"""Who may do what over HTTP: tokens, roles, hosts and sites."""

import base64

import httpx
import pytest

from tests.support.worlds.web import OPERATOR, TOKENS, VIEWER, a_web_world, bearer, rules, sha256
from worker.core.errors import ConfigError
from worker.web.access import AccessMode, AccessRole, parse_tokens
from worker.web.addresses import Address, is_loopback_name, parse_address

WORKERS = "/api/v1/workers"
EVERYWHERE = Address("0.0.0.0", 8040)


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:interlock:problem:")


# --- the settings -----------------------------------------------------------------------------------------------------


def test_an_address_that_others_can_reach_needs_authentication() -> None:
    with pytest.raises(ConfigError, match="INTERLOCK_WEB_AUTH=token"):
        rules(address=EVERYWHERE, mode=AccessMode.LOCAL)


def test_authentication_without_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no token"):
        rules(mode=AccessMode.TOKEN, tokens=())


def test_tokens_are_parsed_with_their_roles() -> None:
    found = parse_tokens(TOKENS)

    assert [(each.caller.name, each.caller.role) for each in found] == [
        ("vera", AccessRole.VIEWER),
        ("olaf", AccessRole.OPERATOR),
    ]
    assert sha256(VIEWER) not in repr(found)


@pytest.mark.parametrize(
    "text", ["ann", "ann:admin:" + "0" * 64, "ann:viewer:abc", "a b:viewer:" + "0" * 64, ":viewer:" + "0" * 64]
)
def test_a_token_that_is_not_understood_is_refused_without_its_hash(text: str) -> None:
    with pytest.raises(ConfigError, match="entry 1 of INTERLOCK_WEB_TOKENS") as caught:
        parse_tokens(text)
    assert "0" * 64 not in str(caught.value)


def test_one_token_for_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="the same token twice"):
        parse_tokens(f"a:viewer:{sha256('x')},b:operator:{sha256('x')}")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_only_names_that_always_mean_this_machine_are_loopback(host: str, is_local: bool) -> None:
    assert is_loopback_name(host) is is_local


def test_an_address_of_version_6_is_shown_in_brackets() -> None:
    assert str(parse_address("INTERLOCK_WEB", "[::1]:80")) == "[::1]:80"


# --- reads ------------------------------------------------------------------------------------------------------------


async def test_on_loopback_anyone_may_read() -> None:
    async with a_web_world() as world, world.client() as client:
        assert (await client.get(WORKERS)).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Digest {VIEWER}",
        f"Bearer {sha256(VIEWER)}",  # the hash in the settings is not the token
        f"Bearer {'x' * 2_000}",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
    ],
)
async def test_without_a_valid_token_nothing_is_read(authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with a_web_world(access=rules(mode=AccessMode.TOKEN)) as world, world.client(None, **headers) as client:
        response = await client.get(WORKERS)

    assert problem(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_wrong_token_is_refused_even_where_none_is_needed() -> None:
    async with a_web_world() as world, world.client("wrong") as client:
        assert problem(await client.get(WORKERS)) == (401, "unauthenticated")


async def test_two_different_tokens_in_one_request_are_refused() -> None:
    async with a_web_world(access=rules(mode=AccessMode.TOKEN)) as world, world.client() as client:
        both = [("Authorization", f"Bearer {VIEWER}"), ("Authorization", f"Bearer {OPERATOR}")]
        assert problem(await client.get(WORKERS, headers=both)) == (401, "unauthenticated")


async def test_a_viewer_reads_with_a_token_or_with_it_as_a_password() -> None:
    password = "Basic " + base64.b64encode(f"any:{VIEWER}".encode()).decode()
    async with a_web_world(access=rules(mode=AccessMode.TOKEN)) as world, world.client() as client:
        assert (await client.get(WORKERS, headers=bearer(VIEWER))).status_code == 200
        assert (await client.get(WORKERS, headers={"Authorization": password})).status_code == 200


async def test_health_needs_no_token_and_metrics_do() -> None:
    async with a_web_world(access=rules(mode=AccessMode.TOKEN)) as world, world.client() as client:
        assert [(await client.get(path)).status_code for path in ("/livez", "/healthz", "/readyz")] == [200] * 3
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=bearer(VIEWER))).status_code == 200


# --- hosts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"])
async def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(host: str) -> None:
    async with a_web_world() as world, world.client() as client:
        assert problem(await client.get(WORKERS, headers={"Host": host})) == (421, "wrong-host")


@pytest.mark.parametrize("host", ["localhost", "localhost:8040", "127.0.0.1", "[::1]:8040", "LOCALHOST"])
async def test_every_loopback_name_is_ours(host: str) -> None:
    async with a_web_world() as world, world.client() as client:
        assert (await client.get(WORKERS, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["", "a b", "localhost/evil", "user@localhost", "localhost:99999999"])
async def test_a_host_that_is_none_is_refused(host: str) -> None:
    async with a_web_world() as world, world.client() as client:
        assert problem(await client.get(WORKERS, headers={"Host": host})) == (400, "bad-request")


async def test_with_a_public_name_only_that_name_is_ours() -> None:
    access = rules(address=EVERYWHERE, mode=AccessMode.TOKEN, public_url="https://console.example/interlock")
    async with a_web_world(access=access) as world, world.client(VIEWER) as client:
        assert (await client.get(WORKERS, headers={"Host": "console.example"})).status_code == 200
        assert problem(await client.get(WORKERS, headers={"Host": "other.example"})) == (421, "wrong-host")


# --- changes ----------------------------------------------------------------------------------------------------------

SENSOR = "/api/v1/sensors/orders/landing"


async def change(headers: dict[str, str], token: str | None = OPERATOR, **access: object) -> tuple[int, str]:
    async with a_web_world(access=rules(**access)) as world, world.client(token) as client:
        response = await client.post(SENSOR, headers=headers, json={"rows": 1})
        return (response.status_code, "") if response.is_success else problem(response)


async def test_a_viewer_may_not_change_anything() -> None:
    assert await change({}, VIEWER) == (403, "forbidden")


async def test_without_a_token_nothing_is_changed_even_on_loopback() -> None:
    assert await change({}, None) == (401, "unauthenticated")
    assert await change({"Sec-Fetch-Site": "same-origin"}, None) == (403, "forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8040"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
async def test_a_form_of_another_site_changes_nothing(headers: dict[str, str]) -> None:
    assert await change(headers) == (403, "cross-site")


async def test_a_browser_that_says_nothing_of_its_site_needs_a_token_of_its_own() -> None:
    password = "Basic " + base64.b64encode(f"any:{OPERATOR}".encode()).decode()
    assert await change({"Authorization": password}, None) == (403, "cross-site")


async def test_a_read_only_server_changes_nothing() -> None:
    assert await change({}, is_read_only=True) == (403, "read-only")
