"""Tokens: stable, distinct, and short enough for every target."""

import re

from worker.core.run.state import start_token


def test_a_token_is_the_same_each_time_it_is_asked_for() -> None:
    assert start_token("7f3a", 2) == start_token("7f3a", 2)


def test_each_attempt_of_each_run_has_a_token_of_its_own() -> None:
    attempts = [("7f3a", 1), ("7f3a", 2), ("7f3a", 12), ("7f3a1", 2), ("7f3b", 1)]

    assert len({start_token(run_id, attempt) for run_id, attempt in attempts}) == len(attempts)


def test_a_token_is_of_one_length_whatever_the_run_is_called() -> None:
    assert re.fullmatch(r"il-[0-9a-f]{40}", start_token("x" * 500, 10**6))
