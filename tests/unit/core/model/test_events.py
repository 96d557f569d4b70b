"""How events and their runs are named for people."""

import pytest

from tests.support.builders.values import NOON
from worker.core.model.events import Event


def _event(message: str, schedule: str = "stream", period: str = "2027-03-22") -> Event:
    return Event(id="e", type="X", at=NOON, pipeline="orders", schedule=schedule, period=period, message=message)


@pytest.mark.parametrize(
    ("event", "sentence", "named"),
    [
        (_event("orders/stream/2027-03-22: it failed"), "it failed", "orders/2027-03-22: it failed"),
        (_event("orders/stream/2027-03-22 completed"), "completed", "orders/2027-03-22 completed"),
        (_event("orders/eu/2027-03-22: it failed", "eu"), "it failed", "orders/eu/2027-03-22: it failed"),
        (_event("someone else says so"), "someone else says so", "orders/2027-03-22: someone else says so"),
        (
            _event("ann requested cancel of orders/stream/2027-03-22: wrong file"),
            "ann requested cancel of orders/stream/2027-03-22: wrong file",
            "ann requested cancel of orders/2027-03-22: wrong file",
        ),
        (_event("orders/stream/2027-03-22T07 ran"), "orders/stream/2027-03-22T07 ran", "orders/2027-03-22T07 ran"),
        (_event(""), "", "orders/2027-03-22"),
    ],
)
def test_a_message_names_its_run_once_and_as_people_do(event: Event, sentence: str, named: str) -> None:
    assert (event.sentence, event.named_sentence) == (sentence, named)


def test_an_event_about_no_pipeline_is_its_message() -> None:
    event = Event(id="e", type="X", at=NOON, message="the watchdog is degraded")

    assert (event.sentence, event.named_sentence) == ("the watchdog is degraded", "the watchdog is degraded")
