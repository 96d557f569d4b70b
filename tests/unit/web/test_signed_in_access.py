"""People who were signed in before their request came: by a load balancer's signed token, or by a trusted proxy."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

from tests.support.clock.manual import NOON, ManualClock
from tests.support.worlds.web import BASE, OPERATOR, WebWorld, a_web_world, bearer, rules, sha256
from worker.app.web import checked_access
from worker.config.settings import read_settings
from worker.core.errors import ConfigError, RetryLater
from worker.web.access import AccessMode, AccessRole, parse_tokens
from worker.web.addresses import Address
from worker.web.identity.alb_access import AlbAccess
from worker.web.identity.key_source import FETCHES_MAX, KEPT_S, KeySource, key_address
from worker.web.operators import WebOperators, parse_operators
from worker.web.proxy_access import parse_proxy_access

WORKERS, PAUSE = "/api/v1/workers", "/api/v1/pipelines/orders/pause"
EVERYWHERE = Address("0.0.0.0", 8040)
ARN = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/app/console/50dc6c495c0c9188"
CLIENT, KID = "client-1", "12345678-1234-1234-1234-123456789012"
PAST, SOON = int(NOON.timestamp()) - 60, int(NOON.timestamp()) + 120
OPERATORS = parse_operators("user:ann@example.com,group:data-oncall")
KEY, FOREIGN = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


def pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def token(
    claims: Mapping[str, Any] | None = None,
    key: ec.EllipticCurvePrivateKey = KEY,
    **head: object,
) -> str:
    """A token as a load balancer signs it: its base64 is padded."""
    headers = {"alg": "ES256", "typ": "JWT", "kid": KID, "signer": ARN, "client": CLIENT, "exp": SOON, **head}
    said = {"sub": "u1", "email": "bob@example.com", "email_verified": "true", "exp": SOON, **(claims or {})}
    text = f"{part(headers)}.{part({name: value for name, value in said.items() if value is not None})}"
    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(text.encode(), key)
    return f"{text}.{base64.urlsafe_b64encode(signature).decode()}"


def unsigned(**head: object) -> str:
    headers = {"alg": "none", "kid": KID, "signer": ARN, "client": CLIENT, "exp": SOON, **head}
    return f"{part(headers)}.{part({'sub': 'u1', 'email': 'ann@example.com', 'email_verified': True})}."


class Keys:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_down = False

    async def fetch(self, kid: str) -> str | None:
        self.asked.append(kid)
        if self.is_down:
            raise RetryLater("the keys cannot be read; try again")
        return pem(KEY) if kid == KID else None


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
async def world(keys: Keys) -> AsyncIterator[WebWorld]:
    clock = ManualClock()
    access = AlbAccess(ARN, CLIENT, KeySource(keys.fetch, clock), OPERATORS, clock)
    made = rules(address=EVERYWHERE, mode=AccessMode.ALB, public_url="http://127.0.0.1", identify=access.identify)
    async with a_web_world(clock=clock, access=made) as found:
        yield found


async def status(world: WebWorld, data: str | None, path: str = WORKERS, **headers: str) -> int:
    async with world.client(**headers) as client:
        given = {} if data is None else {"x-amzn-oidc-data": data}
        if path == WORKERS:
            return (await client.get(path, headers=given)).status_code
        body = {"reason": "a test"}
        return (await client.post(path, headers={**given, **SAME_SITE}, json=body)).status_code


# --- the load balancer ------------------------------------------------------------------------------------------------


async def test_a_signed_token_of_our_load_balancer_may_read(world: WebWorld) -> None:
    assert await status(world, token()) == 200


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("x.y.z", id="malformed"),
        pytest.param("." * 40, id="dots"),
        pytest.param("a" * 20_000, id="too long"),
        pytest.param(unsigned(), id="unsigned"),
        pytest.param(unsigned(alg="ES256"), id="without its signature"),
        pytest.param(token(key=FOREIGN), id="signed by another key"),
        pytest.param(token(signer=ARN.replace("console", "another")), id="another load balancer"),
        pytest.param(token(signer=None), id="no load balancer"),
        pytest.param(token(client="client-2"), id="another client"),
        pytest.param(token(exp=PAST), id="expired"),
        pytest.param(token({"exp": PAST}), id="expired inside"),
        pytest.param(token(exp=SOON + 86_400), id="lives too long"),
        pytest.param(token(exp="soon"), id="no time"),
        pytest.param(token(kid="../../secrets"), id="a path as its key"),
        pytest.param(token(kid="12345678-1234-1234-1234-000000000000"), id="an unknown key"),
        pytest.param(token(kid=7), id="a number as its key"),
        pytest.param(token({"sub": None, "email": None}), id="nobody"),
        pytest.param(token({"email": "a\nb@example.com"}), id="a name with a line break"),
        pytest.param(token() + "x", id="changed"),
    ],
)
async def test_any_other_token_is_rejected(world: WebWorld, forged: str | None) -> None:
    assert await status(world, forged) == 401


async def test_a_token_signed_with_the_public_key_as_a_secret_is_rejected(world: WebWorld) -> None:
    head = {"kid": KID, "signer": ARN, "client": CLIENT, "exp": SOON}
    secret = sha256("public")  # libraries refuse a key in this place; the algorithm alone must be enough
    forged = jwt.encode({"sub": "u1", "exp": SOON}, secret, "HS256", head)

    assert await status(world, forged) == 401


async def test_two_tokens_in_one_request_are_rejected(world: WebWorld) -> None:
    transport = httpx.ASGITransport(world.guard)
    headers = [("x-amzn-oidc-data", token()), ("x-amzn-oidc-data", token({"email": "ann@example.com"}))]
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        assert (await client.get(WORKERS, headers=headers)).status_code == 401


async def test_the_identity_that_is_not_signed_is_never_trusted(world: WebWorld) -> None:
    assert await status(world, None, **{"x-amzn-oidc-identity": "ann@example.com"}) == 401


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, 403),
        ({"email": "ann@example.com"}, 404),  # an operator; there is no such pipeline
        ({"email": "ann@example.com", "email_verified": False}, 403),
        ({"email": "ann@example.com", "email_verified": None}, 403),
        ({"email": "ann@example.com.evil.org"}, 403),
        ({"sub": "ann@example.com", "email": None}, 404),  # the provider chose this id
        ({"groups": ["data-oncall"]}, 404),
        ({"cognito:groups": "x,data-oncall"}, 404),
        ({"groups": ["data-oncall-readers", "DATA-ONCALL"]}, 403),
        ({"groups": {"data-oncall": True}}, 403),
    ],
)
async def test_only_named_users_and_groups_may_act(world: WebWorld, claims: dict[str, Any], expected: int) -> None:
    assert await status(world, token(claims), PAUSE) == expected


async def test_a_program_behind_the_load_balancer_uses_a_token_of_ours(world: WebWorld) -> None:
    assert await status(world, None, **bearer(OPERATOR)) == 200
    assert await status(world, token({"email": "ann@example.com"}), **bearer("wrong")) == 401


async def test_a_key_is_fetched_once_and_unknown_ones_only_a_few_times(world: WebWorld, keys: Keys) -> None:
    for _ in range(3):
        await status(world, token())
    assert keys.asked == [KID]

    found = [await status(world, token(kid=f"12345678-1234-1234-1234-{number:012d}")) for number in range(40)]

    assert len(keys.asked) == FETCHES_MAX
    assert set(found) == {401, 503}
    assert await status(world, token()) == 200, "who has a good token is not locked out"


async def test_a_key_that_cannot_be_fetched_is_no_rejection(world: WebWorld, keys: Keys) -> None:
    keys.is_down = True
    assert await status(world, token()) == 503
    keys.is_down = False
    assert await status(world, token()) == 200


async def test_a_key_is_fetched_again_after_some_hours(keys: Keys) -> None:
    clock = ManualClock()
    source = KeySource(keys.fetch, clock)
    await source.key(KID)
    await clock.sleep(KEPT_S)
    await source.key(KID)

    assert keys.asked == [KID, KID]


def test_keys_are_in_the_region_of_the_load_balancer() -> None:
    assert key_address(ARN) == "https://public-keys.auth.elb.eu-west-1.amazonaws.com"
    gov = ARN.replace("arn:aws:", "arn:aws-us-gov:").replace("eu-west-1", "us-gov-west-1")
    assert key_address(gov) == "https://s3-us-gov-west-1.amazonaws.com/aws-elb-public-keys-prod-us-gov-west-1"


# --- the proxy --------------------------------------------------------------------------------------------------------

SECRET = "shared-secret-of-the-proxy"
FROM_PROXY = {"X-Interlock-Proxy": SECRET, "X-Forwarded-User": "bob@example.com"}


async def by_proxy(client_address: str, headers: Mapping[str, str], path: str = WORKERS) -> int:
    access = parse_proxy_access(("10.0.1.0/24", "fd00::/64"), sha256(SECRET), OPERATORS)
    made = rules(address=EVERYWHERE, mode=AccessMode.PROXY, identify=access.identify)
    async with a_web_world(access=made) as world:
        transport = httpx.ASGITransport(world.guard, client=(client_address, 5000))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            if path == WORKERS:
                return (await client.get(path, headers=headers)).status_code
            answer = await client.post(path, headers={**headers, **SAME_SITE}, json={"reason": "a test"})
            return answer.status_code


@pytest.mark.parametrize(
    ("address", "headers", "expected"),
    [
        ("10.0.1.7", FROM_PROXY, 200),
        ("fd00::7", FROM_PROXY, 200),
        ("10.0.2.7", FROM_PROXY, 401),
        ("127.0.0.1", FROM_PROXY, 401),
        ("not an address", FROM_PROXY, 401),
        ("10.0.1.7", {}, 401),
        ("10.0.1.7", {**FROM_PROXY, "X-Interlock-Proxy": "wrong"}, 401),
        ("10.0.1.7", {**FROM_PROXY, "X-Interlock-Proxy": sha256(SECRET)}, 401),
        ("10.0.1.7", {**FROM_PROXY, "X-Interlock-Proxy": SECRET + "x" * 2_000}, 401),
        ("10.0.1.7", {"X-Interlock-Proxy": SECRET}, 401),
        ("10.0.1.7", {**FROM_PROXY, "X-Forwarded-User": "a,b"}, 401),
        ("10.0.1.7", {**FROM_PROXY, "X-Forwarded-User": "x" * 200}, 401),
        ("10.0.2.7", {**FROM_PROXY, "X-Forwarded-For": "10.0.1.7"}, 401),
    ],
)
async def test_a_proxy_is_trusted_by_its_address_and_its_secret(
    address: str, headers: dict[str, str], expected: int
) -> None:
    assert await by_proxy(address, headers) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 403),
        ({"X-Forwarded-User": "ann@example.com"}, 404),
        ({"X-Forwarded-Groups": "staff, data-oncall"}, 404),
        ({"X-Forwarded-Groups": "data-oncall-readers"}, 403),
    ],
)
async def test_only_named_users_and_groups_of_a_proxy_may_act(headers: dict[str, str], expected: int) -> None:
    assert await by_proxy("10.0.1.7", {**FROM_PROXY, **headers}, PAUSE) == expected


# --- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "is_allowed"),
    [
        ("POST", "/api/v1/sensors/orders/landed", True),
        ("POST", "/api/v1/sensors", True),
        ("GET", "/api/v1/workers", False),
        ("GET", "/api/v1/sensors", False),
        ("GET", "/metrics", False),
        ("GET", "/", False),
        ("POST", PAUSE, False),
        ("POST", "/api/v1/sensorsx", False),
        ("POST", "/api/v1/runs/orders/cron/2026-03-03/rerun", False),
        ("DELETE", "/api/v1/runs/orders/cron/2026-03-03", False),
        ("POST", "/api/v1/bulk", False),
    ],
)
async def test_a_producer_may_write_sensors_and_nothing_else(method: str, path: str, is_allowed: bool) -> None:
    [made] = parse_tokens(f"loader:producer:{sha256('producer')}")
    assert made.caller.role is AccessRole.PRODUCER
    async with a_web_world(access=rules(tokens=[made])) as world:
        transport = httpx.ASGITransport(world.guard)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer("producer")) as client:
            body = {"rows": 1} if "orders" in path else [{"pipeline": "orders", "key": "landed", "data": {"rows": 1}}]
            answer = await client.request(method, path, json=None if method == "GET" else body)

    assert (answer.status_code == 202) is is_allowed
    assert is_allowed or answer.status_code == 403


async def test_a_producer_may_put_the_summary_of_a_running_job() -> None:
    tokens = parse_tokens(f"loader:producer:{sha256('producer')}")
    async with a_web_world(access=rules(tokens=tokens)) as world:
        transport = httpx.ASGITransport(world.guard)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer("producer")) as client:
            answer = await client.post("/api/v1/runs/orders/stream/2026-03-03/summary", json={"seen": 1})

    assert answer.status_code == 409  # there is no such run; the role may ask


async def test_nobody_acts_on_a_server_that_is_read_only() -> None:
    async with a_web_world(access=rules(is_read_only=True)) as world, world.client(OPERATOR) as client:
        assert (await client.post(PAUSE, json={"reason": "x"})).status_code == 403


# --- the settings -----------------------------------------------------------------------------------------------------

PROXY_SETTINGS = {
    "INTERLOCK_WEB": "0.0.0.0:8040",
    "INTERLOCK_WEB_AUTH": "proxy",
    "INTERLOCK_WEB_PROXIES": "10.0.1.0/24",
    "INTERLOCK_WEB_PROXY_SECRET": "0" * 64,
}
ALB_SETTINGS = {"INTERLOCK_WEB": "0.0.0.0:8040", "INTERLOCK_WEB_AUTH": "alb", "INTERLOCK_WEB_ALB": ARN}


def test_settings_of_both_modes_are_accepted() -> None:
    assert checked_access(read_settings(PROXY_SETTINGS)).mode is AccessMode.PROXY
    assert checked_access(read_settings(ALB_SETTINGS)).mode is AccessMode.ALB


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_PROXIES": ""}, "no proxy is named"),
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_PROXIES": "0.0.0.0/0"}, "trusts every address"),
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_PROXIES": "proxy.example.com"}, "write networks such as"),
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_PROXY_SECRET": "plain"}, "not the SHA-256 of a secret"),
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_OPERATORS": "ann"}, "user:NAME or group:NAME"),
        ({**PROXY_SETTINGS, "INTERLOCK_WEB_AUTH": "oidc"}, "local, token, alb or proxy"),
        ({**ALB_SETTINGS, "INTERLOCK_WEB_ALB": "arn:aws:s3:::bucket"}, "not the ARN of an application load balancer"),
        ({**ALB_SETTINGS, "INTERLOCK_WEB_ALB": ARN.replace("arn:aws", "arn:aws-cn")}, "partition aws-cn"),
    ],
)
def test_settings_that_would_let_others_in_are_rejected(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        checked_access(read_settings(settings))
    assert "0" * 64 not in str(caught.value)


def test_an_operator_is_named_in_full() -> None:
    assert WebOperators(frozenset({"ann@example.com"}), frozenset({"data-oncall"})) == OPERATORS
    assert OPERATORS.caller("Ann@example.com", ()).role is AccessRole.VIEWER
