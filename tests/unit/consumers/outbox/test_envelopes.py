"""Events as a bus puts them into a queue."""

import json
from datetime import timedelta

import pytest

from consumers.outbox.envelopes import INFRASTRUCTURE, BadEnvelope, event_in, read_envelope
from consumers.outbox.routes import envelope
from consumers.outbox.routes import event_in as routed_event
from consumers.queues.queue import Message
from tests.support.clock.manual import NOON
from tests.support.worlds.alerts import FAILED
from worker.core.errors import Rejected
from worker.core.model.events import Event
from worker.core.model.values import Json


def a_message(body: object) -> Message:
    text = body if isinstance(body, str) else json.dumps(body)
    return Message(id="m1", handle="h", body=text, sent_at=NOON)


def a_body(**changes: object) -> dict[str, object]:
    return {"id": "b1", "source": "acme", "detail-type": "X", "time": "2026-03-03T12:00:00Z", "detail": {}, **changes}


def test_our_own_event_comes_back_as_it_was_under_its_own_id() -> None:
    carried = {**envelope(FAILED), "id": "an id the bus gave it"}

    found = read_envelope(a_message(carried))

    assert found.is_ours
    assert event_in(found) == FAILED


def test_anothers_event_is_known_by_the_buss_id_and_kept_whole() -> None:
    detail: dict[str, Json] = {"pipelineId": 3, "detail": [], "message": None, "eventId": "one of ours"}

    found = read_envelope(a_message(a_body(detail=detail)))

    assert not found.is_ours
    assert event_in(found) == Event(id="b1", type="X", at=NOON, detail={**detail, "source": "acme"})


def test_an_alarm_becomes_an_event_of_the_infrastructure() -> None:
    detail = {"alarmName": "lag", "state": {"value": "ALARM", "reason": "over 60"}}
    body = a_body(source="aws.cloudwatch", detail=detail) | {"detail-type": "CloudWatch Alarm State Change"}

    found = read_envelope(a_message(body))

    assert (found.is_alarm, found.alarm_state) == (True, "ALARM")
    assert event_in(found) == Event(
        id="b1",
        type="INFRA_ALARM",
        at=NOON,
        pipeline=INFRASTRUCTURE,
        message="lag is ALARM: over 60",
        detail={**detail, "source": "aws.cloudwatch"},
    )


def test_an_alarm_of_another_shape_is_told_as_far_as_it_goes() -> None:
    body = a_body(source="aws.cloudwatch", detail={"state": 3}) | {"detail-type": "CloudWatch Alarm State Change"}

    event = event_in(read_envelope(a_message(body)))

    assert event.message == "an alarm without a name is in an unknown state: "


def test_without_a_time_an_event_is_as_old_as_its_message() -> None:
    assert event_in(read_envelope(a_message(a_body(time="yesterday")))).at == NOON


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "3", {"detail-type": "X"}, {"detail": {}}, {"detail-type": 1, "detail": {}}]
)
def test_what_is_no_envelope_is_refused(body: object) -> None:
    with pytest.raises(BadEnvelope, match="m1"):
        read_envelope(a_message(body))


def test_an_event_leaves_in_the_form_that_consumers_of_the_reference_read() -> None:
    assert envelope(FAILED) == {
        "id": "e1",
        "source": "interlock",
        "detail-type": "JOB_FAILED",
        "time": "2026-03-03T12:00:00Z",
        "detail": {
            "eventId": "e1",
            "pipelineId": "orders",
            "scheduleId": "daily",
            "date": "2026-03-03",
            "message": "exit code 3",
            "timestamp": "2026-03-03T12:00:00Z",
            "detail": {"version": 4, "actionHint": "look at the job's log"},
        },
    }


def test_of_an_event_what_is_empty_is_left_out_but_the_pipeline_which_is_always_there() -> None:
    carried = envelope(Event(id="e1", type="WATCHDOG_DEGRADED", at=NOON))

    assert carried["detail"] == {"eventId": "e1", "pipelineId": "", "timestamp": "2026-03-03T12:00:00Z"}


@pytest.mark.parametrize(
    ("source", "kind"), [("acme", "CloudWatch Alarm State Change"), ("aws.cloudwatch", "Something Else")]
)
def test_only_a_change_of_an_alarm_is_an_alarm(source: str, kind: str) -> None:
    found = read_envelope(a_message(a_body(source=source) | {"detail-type": kind}))

    assert not found.is_alarm
    assert (event_in(found).type, event_in(found).pipeline) == (kind, "")


def test_an_event_is_as_old_as_it_says_itself_else_as_its_bus_says() -> None:
    later = "2026-03-03T13:00:00Z"
    said = event_in(read_envelope(a_message(a_body(detail={"timestamp": later}))))
    carried = event_in(read_envelope(a_message(a_body(time=later))))

    assert said.at == carried.at == NOON + timedelta(hours=1)


def test_an_event_without_an_id_of_its_bus_goes_by_its_messages() -> None:
    assert event_in(read_envelope(a_message(a_body(id="")))).id == "m1"


def test_an_event_of_ours_is_read_back_from_what_a_dead_letter_holds_and_nothing_else_is() -> None:
    assert routed_event(envelope(FAILED)) == FAILED
    for other in ({"time": "2026-03-03T12:00:00Z"}, {**envelope(FAILED), "time": "noon"}):
        with pytest.raises(Rejected, match="drop the dead letter"):
            routed_event(other)
