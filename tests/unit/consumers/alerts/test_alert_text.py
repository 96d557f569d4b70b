"""What alerts look like in the chat."""

import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.alerts.chat import ChatMessage
from consumers.alerts.text import (
    FACE_MAX,
    NAMED_MAX,
    SECTION_MAX,
    alert,
    digest,
    elsewhere,
    first_message,
    group,
    summary,
)
from consumers.outbox.severities import Severity
from tests.support.clock.manual import NOON
from tests.support.worlds.alerts import FAILED
from worker.store.repos.delivery.threads import ThreadHeader, ThreadKey

THREAD = ThreadKey("orders", "daily", "2026-03-03")


def objects_in(saying: ChatMessage) -> list[dict[str, Any]]:
    """The text objects of a message, in order."""
    blocks: Any = saying.blocks
    return [text for block in blocks for text in ([block["text"]] if "text" in block else block["elements"])]


def text_of(saying: ChatMessage) -> str:
    blocks: Any = saying.blocks
    return "\n".join(block["text"]["text"] for block in blocks if "text" in block)


def test_an_alert_says_how_bad_what_about_which_run_and_what_to_do() -> None:
    event = replace(FAILED, detail={**FAILED.detail, "status": "RUNNING", "source": "schedule", "cron": "0 5 * * *"})

    assert text_of(alert(event)) == (
        ":red_circle: *JOB_FAILED* | orders | daily | 2026-03-03\n"
        "exit code 3\n"
        "Status: RUNNING · Source: schedule · Cron: 0 5 * * *\n"
        "→ look at the job's log"
    )


@pytest.mark.parametrize(("schedule", "name"), [("cron", "orders/2026-03-03"), ("daily", "orders/daily/2026-03-03")])
def test_a_schedule_is_named_only_if_it_has_a_name_of_its_own(schedule: str, name: str) -> None:
    run = f"orders/{schedule}/2026-03-03"
    event = replace(FAILED, schedule=schedule, message=f"{run}: the job of attempt 1 failed")
    face = ThreadHeader(first=summary(event), latest="")

    about = name.replace("/", " | ")

    assert text_of(alert(event)).startswith(f":red_circle: *JOB_FAILED* | {about}\n{name}: the job of attempt 1 failed")
    assert summary(event) == f"JOB_FAILED: {name}: the job of attempt 1 failed"
    assert f"*{about}*" in text_of(first_message(ThreadKey("orders", schedule, "2026-03-03"), face))
    assert f"{name}: the job of attempt 1 failed" in text_of(group(Severity.ALERT, [event]))


HOSTILE = [
    "<!channel> & <https://example.com|click>",
    "<@U123> <#C123> <!subteam^S1>",
    "see https://evil.example/login and evil.example",
    "*bold* _it_ ~gone~ `code` ```block``` > quote",
    ":red_circle: *JOB_FAILED* | payments",
    "&lt;!channel&gt;",
    "abc\u202egnp.exe \u2066x\u2069 \u200f\u061c",
    "a\x00b\x1b[31mc\x07 \u200bzero\ufeff \U000e0041",
    "@here @channel #general",
]


def sayings_about(text: str) -> list[ChatMessage]:
    """Every message into which others' words come, with the text wherever they may stand."""
    detail = {"actionHint": text, "status": text, "source": text, "cron": text, "sensorKey": text}
    event = replace(FAILED, message=text, detail=detail)
    named = replace(event, type=text, pipeline=text, schedule=text, period=text)
    face = ThreadHeader(first=summary(event), latest=summary(named))
    digested = digest(NOON, NOON + timedelta(minutes=15), Counter({text: 7}), Counter({text: 3}))
    return [
        *(said for each in (event, named) for said in (alert(each), elsewhere(each))),
        first_message(THREAD, face),
        first_message(ThreadKey(text, text, text), face),
        digested,
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_is_shown_and_does_nothing(text: str) -> None:
    for saying in sayings_about(text):
        assert not UNDONE.search(saying.text)
        for each in objects_in(saying):
            assert not UNDONE.search(each["text"])
            assert each["type"] == "plain_text" or each["verbatim"] is True
            assert each.get("emoji") is (False if each["type"] == "plain_text" else None)


# A sign of Slack's own, an entity that none of ours begins, and what cannot be seen.
UNDONE = re.compile(
    "[<>]|&(?!amp;|lt;|gt;)|[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0041]"
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_is_plain_text_and_only_names_stand_in_markup(text: str) -> None:
    event = replace(FAILED, message=text, detail={"actionHint": text, "source": text})

    for saying in (alert(event), elsewhere(event), first_message(THREAD, ThreadHeader(first=summary(event)))):
        marked_up = [each["text"] for each in objects_in(saying) if each["type"] == "mrkdwn"]
        assert marked_up == [each["text"] for each in objects_in(saying)[:1]]
        assert marked_up[0].endswith(("| orders | daily | 2026-03-03", ": *orders | daily | 2026-03-03*"))


def test_a_name_cannot_end_the_markup_it_stands_in() -> None:
    event = replace(FAILED, pipeline="a* `b` ~c~\n:red_circle: d")

    assert objects_in(alert(event))[0]["text"] == (
        ":red_circle: *JOB_FAILED* | a b c :red_circle: d | daily | 2026-03-03"
    )


@given(st.text())
def test_whatever_is_said_the_notification_is_escaped_as_the_blocks_are(text: str) -> None:
    event = replace(FAILED, message=text)
    face = ThreadHeader(first=summary(event), latest=summary(event))

    for saying in (alert(event), first_message(THREAD, face)):
        assert not UNDONE.search(saying.text)


def test_a_message_of_any_length_fits() -> None:
    event = replace(FAILED, message="<" * 100_000, detail={"actionHint": "x" * 100_000})

    for saying in (alert(event), first_message(THREAD, ThreadHeader(first=summary(event), latest="&" * 400))):
        assert all(0 < len(each["text"]) <= SECTION_MAX for each in objects_in(saying))
        assert all(not re.search("&[a-z]*…", each["text"]) for each in objects_in(saying))
        assert len(saying.text) <= FACE_MAX
    assert len(summary(event)) <= FACE_MAX


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\x1b", "\u202e \x00"])
def test_what_cannot_be_seen_makes_no_block(text: str) -> None:
    """Slack refuses a message with an empty block as a whole."""
    for saying in sayings_about(text):
        assert all(each["text"].strip() for each in objects_in(saying) if each["type"] == "plain_text")
    assert len(alert(replace(FAILED, message=text, detail={})).blocks) == 1


def test_a_summary_is_one_line() -> None:
    assert summary(replace(FAILED, message="a\nb\t c")) == "JOB_FAILED: a b c"
    assert summary(replace(FAILED, message="")) == "JOB_FAILED"


def test_the_first_message_says_how_it_stands_how_it_began_and_what_came_last() -> None:
    face = ThreadHeader(version=3, standing="recovered", first="SLA_BREACH: late", latest="JOB_COMPLETED")

    saying = first_message(THREAD, face)

    blocks: Any = saying.blocks
    assert text_of(saying) == ":white_check_mark: *orders | daily | 2026-03-03*: *recovered*\nSLA_BREACH: late"
    assert blocks[2]["elements"][0]["text"] == "now: JOB_COMPLETED"
    assert saying.text == "orders daily 2026-03-03: recovered: JOB_COMPLETED"


def test_a_digest_names_the_busiest_pipelines_and_counts_the_others() -> None:
    pipelines = Counter({f"p{number:03}": 100 - number for number in range(NAMED_MAX + 3)})

    said = digest(NOON, NOON + timedelta(minutes=15), Counter(JOB_COMPLETED=7), pipelines)

    assert text_of(said).startswith(":white_check_mark: *Digest* | 2026-03-03 12:00 to 12:15 UTC: 7 JOB_COMPLETED\n")
    assert text_of(said).endswith("p019 81 and 3 more")
