"""What alerts look like in the chat."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from consumers.alerts_chat import Saying
from consumers.alerts_text import FACE_MAX, NAMED_MAX, SECTION_MAX, alert, digest, first_message, summary
from tests.alertsworld import FAILED
from tests.manualclock import NOON
from worker.store.threads import Face, ThreadKey

THREAD = ThreadKey("orders", "daily", "2026-03-03")


def text_of(saying: Saying) -> str:
    blocks: Any = saying.blocks
    return blocks[0]["text"]["text"]


def test_an_alert_says_how_bad_what_about_which_run_and_what_to_do() -> None:
    event = replace(FAILED, detail={**FAILED.detail, "status": "RUNNING", "source": "schedule", "cron": "0 5 * * *"})

    assert text_of(alert(event)) == (
        ":red_circle: *JOB_FAILED* | orders | daily | 2026-03-03\n"
        "exit code 3\n"
        "Status: RUNNING · Source: schedule · Cron: 0 5 * * *\n"
        "→ look at the job's log"
    )


def test_nothing_in_a_message_calls_everyone() -> None:
    event = replace(FAILED, message="<!channel> & <https://example.com|click>")

    assert "<" not in text_of(alert(event))
    assert "&lt;!channel&gt; &amp;" in text_of(alert(event))
    assert "<" not in text_of(first_message(THREAD, Face(first=summary(event), latest=summary(event))))


def test_a_message_of_any_length_fits() -> None:
    event = replace(FAILED, message="<" * 100_000, detail={"actionHint": "x" * 100_000})

    assert len(text_of(alert(event))) <= SECTION_MAX
    assert len(alert(event).text) <= FACE_MAX
    assert len(summary(event)) <= FACE_MAX


def test_a_summary_is_one_line() -> None:
    assert summary(replace(FAILED, message="a\nb\t c")) == "JOB_FAILED: a b c"
    assert summary(replace(FAILED, message="")) == "JOB_FAILED"


def test_the_first_message_says_how_it_stands_how_it_began_and_what_came_last() -> None:
    face = Face(version=3, standing="recovered", first="SLA_BREACH: late", latest="JOB_COMPLETED")

    saying = first_message(THREAD, face)

    blocks: Any = saying.blocks
    assert text_of(saying) == ":white_check_mark: *orders | daily | 2026-03-03*: *recovered*\nSLA_BREACH: late"
    assert blocks[1]["elements"][0]["text"] == "now: JOB_COMPLETED"
    assert saying.text == "orders daily 2026-03-03: recovered: JOB_COMPLETED"


def test_a_digest_names_the_busiest_pipelines_and_counts_the_others() -> None:
    pipelines = Counter({f"p{number:03}": 100 - number for number in range(NAMED_MAX + 3)})

    said = digest(NOON, NOON + timedelta(minutes=15), Counter(JOB_COMPLETED=7), pipelines)

    assert text_of(said).startswith(":white_check_mark: *Digest* | 2026-03-03 12:00 to 12:15 UTC: 7 JOB_COMPLETED\n")
    assert text_of(said).endswith("p019 81 and 3 more")
