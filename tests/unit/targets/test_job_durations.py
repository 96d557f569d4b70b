"""How long a job is likely to take is learnt from those before it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders.values import MINUTE
from tests.support.worlds.engine import run_key
from worker.core.model.pipeline import ScheduleId
from worker.targets import job_durations
from worker.targets.job_durations import Durations

KEY = run_key()


def test_without_experience_nothing_is_expected() -> None:
    assert Durations().expected(KEY) is None


def test_what_is_expected_follows_the_newest_slowly() -> None:
    known = Durations()

    known.note(KEY, 10 * MINUTE)
    assert known.expected(KEY) == 10 * MINUTE
    known.note(KEY, 20 * MINUTE)
    assert known.expected(KEY) == 13 * MINUTE


def test_a_duration_that_is_none_teaches_nothing() -> None:
    known = Durations()

    known.note(KEY, timedelta(seconds=-5))

    assert known.expected(KEY) is None


def test_what_ran_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_durations, "KEPT_MAX", 2)
    known = Durations()
    keys = [replace(KEY, schedule=ScheduleId(name)) for name in ("a", "b", "c")]

    for key in (keys[0], keys[1], keys[0], keys[2]):
        known.note(key, MINUTE)

    assert [known.expected(key) for key in keys] == [MINUTE, None, MINUTE]
