"""Browsers sign in with a form: the session is a signed cookie, which ends with its token or after twelve hours."""

from datetime import timedelta

import httpx
import pytest

from tests.support.worlds.console import a_console_world, fill_store
from tests.support.worlds.web import OPERATOR, TOKENS, VIEWER, bearer, rules, sha256
from worker.web.access import AccessMode, AccessRole, parse_tokens
from worker.web.identity.browser_sessions import COOKIE, TRIES_MAX, BrowserSessions

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
PRODUCER = "producer-token-of-the-tests"
WITH_TOKENS = rules(mode=AccessMode.TOKEN)


async def enter(client: httpx.AsyncClient, token: str, to: str = "/", **headers: str) -> httpx.Response:
    return await client.post("/signin", data={"token": token, "to": to}, headers={**SAME_SITE, **headers})


async def test_a_page_asks_for_a_token_and_is_shown_after_the_form() -> None:
    async with a_console_world(access=WITH_TOKENS) as world, world.browser() as client:
        await fill_store(world.tables, days=3)
        asked = await client.get("/pipelines?q=orders&sort=owner")
        entered = await enter(client, VIEWER, "/pipelines?q=orders&sort=owner")
        shown = await client.get(entered.headers["location"])

    assert asked.status_code == 401
    assert not asked.headers["www-authenticate"].startswith("Basic")  # else the browser would ask by itself
    assert '<input type="hidden" name="to" value="/pipelines?q=orders&amp;sort=owner">' in asked.text
    assert "orders-daily" not in asked.text
    assert 'name="interlock"' not in asked.text  # no live updates before the sign-in
    cookie = entered.headers["set-cookie"]
    assert entered.status_code == 303
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Max-Age=43200", "Path=/"))
    assert VIEWER not in cookie
    assert sha256(VIEWER) not in cookie
    assert "orders-daily" in shown.text
    assert "Sign out" in shown.text


async def test_a_session_below_a_path_is_secure_and_stays_there() -> None:
    access = rules(mode=AccessMode.TOKEN, public_url="https://data.example.com/interlock")
    async with a_console_world(base="/interlock", access=access) as world, world.browser() as client:
        entered = await enter(client, OPERATOR, "/workers", Host="data.example.com")

    assert entered.headers["location"] == "/interlock/workers"
    assert "Secure" in entered.headers["set-cookie"]
    assert "Path=/interlock/" in entered.headers["set-cookie"]


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", "/signout", "evil"]
)
async def test_the_form_leads_nowhere_else(to: str) -> None:
    async with a_console_world() as world, world.browser() as client:
        assert (await enter(client, OPERATOR, to)).headers["location"] == "/"


async def test_an_operator_acts_with_the_session_and_another_site_does_not() -> None:
    async with a_console_world(access=WITH_TOKENS) as world, world.browser() as client:
        await fill_store(world.tables, days=3)
        await enter(client, OPERATOR)
        form = "/pipelines/orders-daily/pause"
        own = await client.post(form, data={"reason": "repair"}, headers=SAME_SITE)
        foreign = await client.post(form, data={"reason": "repair"}, headers={"Sec-Fetch-Site": "cross-site"})
        silent = await client.post(form, data={"reason": "repair"})  # neither a browser nor a program with a token

    assert [each.status_code for each in (own, foreign, silent)] == [200, 403, 401]


async def test_another_site_signs_nobody_in_or_out() -> None:
    async with a_console_world() as world, world.browser() as client:
        entered = await enter(client, OPERATOR, **{"Sec-Fetch-Site": "cross-site"})
        left = await client.post("/signout", headers={"Sec-Fetch-Site": "cross-site"})

    assert (entered.status_code, left.status_code) == (403, 403)


async def test_a_session_ends_with_sign_out_with_its_token_and_after_twelve_hours() -> None:
    async with a_console_world(access=WITH_TOKENS) as world, world.browser() as client:
        await enter(client, VIEWER)
        assert (await client.get("/workers")).status_code == 200
        left = await client.post("/signout", headers=SAME_SITE)
        assert left.status_code == 303
        assert (await client.get("/workers")).status_code == 401

        await enter(client, VIEWER)
        world.clock.advance(timedelta(hours=12))
        assert (await client.get("/workers")).status_code == 401


def session_of(cookie: str) -> dict[str, object]:
    return {"headers": [(b"cookie", f"{COOKIE}={cookie}".encode())]}


async def test_a_cookie_that_was_changed_or_signed_elsewhere_is_nobodys() -> None:
    async with a_console_world() as world:
        tokens, key = parse_tokens(TOKENS), b"k" * 32
        sessions = BrowserSessions(tokens, world.clock, key)
        cookie = sessions.begin(tokens[0])
        name, end, signature = cookie.split(":")

        caller = sessions.caller(session_of(cookie))
        assert caller is not None
        assert (caller.name, caller.role) == ("vera", AccessRole.VIEWER)
        for forged in (
            f"olaf:{end}:{signature}",
            f"{name}:{int(end) + 1}:{signature}",
            f"{name}:{end}:{'0' * 64}",
            f"{name}:{end}:",
            f"{name}::{signature}",
            f"{name}:\u0663:{signature}",
            f"{name}:{end}:\u00e9",
            "x" * 5_000,
            "",
        ):
            assert sessions.caller({"headers": [(b"cookie", f"{COOKIE}={forged}".encode())]}) is None
        assert BrowserSessions(tokens, world.clock, b"another key").caller(session_of(cookie)) is None
        # The same name with a new token: whoever had the old one is signed out.
        replaced = parse_tokens(TOKENS.replace(sha256(VIEWER), sha256("new")))
        assert BrowserSessions(replaced, world.clock, key).caller(session_of(cookie)) is None


async def test_wrong_tokens_are_logged_without_their_text_and_are_slowed_down(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with a_console_world() as world, world.browser() as client:
        for _ in range(TRIES_MAX):
            wrong = await enter(client, "a-wrong-token")
            assert wrong.status_code == 401
            assert "this is not a valid token" in wrong.text
            assert "a-wrong-token" not in wrong.text
        assert (await enter(client, OPERATOR)).status_code == 429
        world.clock.advance(timedelta(minutes=1))
        assert (await enter(client, OPERATOR)).status_code == 303
    assert "a-wrong-token" not in capsys.readouterr().out


async def test_a_token_that_cannot_read_begins_no_session() -> None:
    tokens = parse_tokens(f"loader:producer:{sha256(PRODUCER)}")
    async with a_console_world(access=rules(mode=AccessMode.TOKEN, tokens=tokens)) as world, world.browser() as client:
        refused = await enter(client, PRODUCER)

    assert "cannot read pages" in refused.text
    assert "set-cookie" not in refused.headers


async def test_programs_send_their_token_as_before() -> None:
    async with a_console_world(access=WITH_TOKENS) as world, world.browser() as client:
        basic = httpx.BasicAuth("anyone", OPERATOR)
        assert (await client.get("/workers", auth=basic)).status_code == 200
        assert (await client.get("/workers", headers=bearer(VIEWER))).status_code == 200
        asked = await client.get("/api/v1/workers", headers={"Accept": "application/json"})

    assert (asked.status_code, asked.headers["content-type"]) == (401, "application/problem+json")


async def test_a_read_only_server_has_sessions_and_no_changes() -> None:
    async with (
        a_console_world(access=rules(mode=AccessMode.TOKEN, is_read_only=True)) as world,
        world.browser() as client,
    ):
        assert (await enter(client, OPERATOR)).status_code == 303
        assert (await client.get("/workers")).status_code == 200
        assert (await client.post("/pipelines/x/pause", headers=SAME_SITE)).status_code == 403
