"""Slack's SDK on a real wire: sends once, whatever becomes of the answer, and says what kind of trouble it was."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest

from consumers.alerts.chat import ChatBusy, ChatDown, ChatMessage, ChatRefused, Posted
from consumers.alerts.slack import RETRY_AFTER_S, SlackChat, session_for_slack
from tests.support.fakes.slack import (
    ERROR,
    RESET,
    RESET_AFTER,
    TOKEN,
    UNAVAILABLE,
    FakeSlack,
    Trouble,
    refusal,
)
from worker.core.errors import Rejected, RetryLater
from worker.runtime.clock import SystemClock

SAYING = ChatMessage("hello", [{"type": "section", "text": {"type": "mrkdwn", "text": "*hello*"}}])
Wire: TypeAlias = tuple[FakeSlack, SlackChat]


async def token() -> str:
    return TOKEN


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    slack = FakeSlack(SystemClock())
    async with slack.on_loopback() as api, session_for_slack() as session:
        yield slack, SlackChat(token, session, api=api)


async def test_a_message_is_posted_answered_and_changed(wire: Wire) -> None:
    slack, chat = wire

    posted = await chat.post("#alerts", SAYING)
    await chat.update(posted, ChatMessage("now", [{"type": "section", "text": {"type": "mrkdwn", "text": "*now*"}}]))

    assert posted == Posted("C-alerts", slack.messages[0].ts)
    assert slack.messages[0].texts == ["*hello*", "*now*"]
    await chat.post("#other", SAYING, thread=posted.timestamp)
    assert slack.messages[1].thread_ts == posted.timestamp


async def test_slack_is_told_to_make_no_links_of_what_it_finds_in_a_text(wire: Wire) -> None:
    slack, chat = wire
    payloads: list[Any] = []
    slack.trouble = lambda _m, payload: payloads.append(payload)

    await chat.update(await chat.post("#alerts", SAYING), SAYING)

    assert [(payload["parse"], payload["link_names"]) for payload in payloads] == [("none", False)] * 2
    assert (payloads[0]["unfurl_links"], payloads[0]["unfurl_media"]) == (False, False)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (UNAVAILABLE, ChatDown),
        (ERROR, ChatDown),
        (RESET, ChatDown),
        (RESET_AFTER, ChatDown),
        (Trouble(body="<html>", content_type="text/html"), ChatDown),
        (Trouble(body="hello", content_type="text/plain"), ChatDown),
        (Trouble(body="{not json", content_type="application/json"), ChatDown),
        (Trouble(status=502, body="bad gateway", content_type="text/plain"), ChatDown),
        (Trouble(status=503, error="never_heard_of"), ChatDown),
        (refusal("fatal_error"), ChatDown),
        (refusal("token_revoked"), ChatDown),
        (refusal("ratelimited"), ChatBusy),
        (Trouble(status=429, body="slow down", content_type="text/plain"), ChatBusy),
        (refusal("channel_not_found"), ChatRefused),
        (refusal("invalid_blocks"), ChatRefused),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value.error or value.body or str(value.status),
)
async def test_a_call_is_sent_once_and_its_trouble_told_apart(wire: Wire, trouble: Trouble, kind: type[Any]) -> None:
    slack, chat = wire
    slack.trouble = lambda _m, _p: trouble

    with pytest.raises(kind):
        await chat.post("#alerts", SAYING)

    assert slack.calls == 1


async def test_retry_after_is_read_from_the_answer(wire: Wire) -> None:
    slack, chat = wire
    waits: list[float] = []

    for said in (7, None):
        slack.trouble = lambda _m, _p, said=said: Trouble(status=429, error="ratelimited", retry_after_s=said)
        with pytest.raises(ChatBusy) as busy:
            await chat.post("#alerts", SAYING)
        waits.append(busy.value.wait_s)

    assert waits == [7.0, RETRY_AFTER_S]


async def test_saying_too_much_at_once_is_answered_as_slack_does(wire: Wire) -> None:
    slack, chat = wire

    await chat.post("#alerts", SAYING)
    with pytest.raises(ChatBusy):
        await chat.post("#alerts", SAYING)

    assert slack.refused_for_pace == 1


async def test_that_slack_is_there_and_knows_us_can_be_asked_without_saying_anything(wire: Wire) -> None:
    slack, chat = wire

    await chat.reach()
    assert slack.messages == []

    slack.tokens.clear()
    with pytest.raises(ChatDown, match="invalid_auth"):
        await chat.reach()
    slack.trouble = lambda _m, _p: refusal("not_allowed_token_type")
    with pytest.raises(RetryLater, match="not_allowed_token_type"):
        await chat.reach()


async def test_no_error_shows_the_token(wire: Wire) -> None:
    slack, chat = wire
    slack.trouble = lambda _m, _p: refusal("invalid_auth")

    with pytest.raises(ChatDown) as down:
        await chat.post("#alerts", SAYING)

    assert TOKEN not in str(down.value)
    assert "INTERLOCK_SLACK_TOKEN" in str(down.value)


@pytest.mark.parametrize("kind", [Rejected, RetryLater])
async def test_a_token_that_cannot_be_read_is_an_outage(kind: type[Exception]) -> None:
    async def no_token() -> str:
        raise kind("there is no secret of that name")

    async with session_for_slack() as session:
        with pytest.raises(ChatDown, match="no secret of that name"):
            await SlackChat(no_token, session).post("#alerts", SAYING)
