"""How far behind a reader is, in its own eyes."""

from datetime import timedelta

from consumers.streams.progress import Backlog
from tests.support.clock.manual import NOON, ManualClock


def test_a_reader_is_behind_by_the_age_of_the_oldest_change_in_its_hands() -> None:
    clock = ManualClock()
    backlog = Backlog(clock)
    backlog.take("1", NOON - timedelta(seconds=40))
    backlog.take("2", NOON - timedelta(seconds=10))

    assert backlog.behind_s == 40
    backlog.done("1")
    assert backlog.behind_s == 10
    backlog.done("2")
    assert backlog.behind_s == 0


def test_a_reader_that_gets_no_answers_falls_behind_though_it_has_nothing_in_hand() -> None:
    clock = ManualClock()
    backlog = Backlog(clock)

    clock.advance(timedelta(seconds=90))
    assert backlog.behind_s == 90
    backlog.answered()
    assert backlog.behind_s == 0
