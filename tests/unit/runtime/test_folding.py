from datetime import timedelta

from tests.support.clock.manual import ManualClock
from worker.runtime.rate_limit import Debouncer


class Doing:
    """Writes down what was begun, and what was put off and by how much."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.begun: list[str] = []
        self.later: list[timedelta] = []
        self.folding: Debouncer[str] = Debouncer(self.clock, self.begun.append, lambda _, wait: self.later.append(wait))


def test_the_first_asking_is_answered_at_once() -> None:
    doing = Doing()

    doing.folding.ask("a")

    assert doing.begun == ["a"]


def test_what_is_asked_for_while_it_is_done_is_done_once_more_afterwards() -> None:
    doing = Doing()
    doing.folding.ask("a")

    for _ in range(5):
        doing.folding.ask("a")
    doing.folding.ended("a")

    assert doing.begun == ["a"]
    assert doing.later == [timedelta(seconds=1)]


def test_what_was_just_done_waits_for_the_rest_of_its_second() -> None:
    doing = Doing()
    doing.folding.ask("a")
    doing.folding.ended("a")
    doing.clock.advance(timedelta(milliseconds=400))

    doing.folding.ask("a")

    assert doing.begun == ["a"]
    assert doing.later == [timedelta(milliseconds=600)]


def test_a_wait_too_short_for_a_clock_is_lengthened_so_that_it_ends() -> None:
    doing = Doing()
    doing.folding.ask("a")
    doing.folding.ended("a")
    doing.clock.advance(timedelta(microseconds=999_900))

    doing.folding.ask("a")

    assert doing.later == [timedelta(milliseconds=1)]


def test_keys_do_not_wait_for_each_other() -> None:
    doing = Doing()
    doing.folding.ask("a")

    doing.folding.ask("b")

    assert doing.begun == ["a", "b"]


def test_what_was_done_long_ago_is_forgotten() -> None:
    doing = Doing()
    for number in range(1000):
        doing.folding.ask(f"key-{number}")
        doing.folding.ended(f"key-{number}")
        doing.clock.advance(timedelta(milliseconds=10))

    assert len(doing.folding) <= 200
