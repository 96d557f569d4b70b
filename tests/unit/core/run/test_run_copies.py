"""Copies of runs equal what `dataclasses.replace` makes."""

from dataclasses import fields, replace

import pytest

from tests.support.builders.values import a_run
from worker.core.run.state import Run, State, altered


def test_a_copy_has_the_changed_fields_and_all_others() -> None:
    run = a_run(state=State.TRIGGERING, attempt=2)

    copy = altered(run, state=State.POLLING, version=7)

    assert copy == replace(run, state=State.POLLING, version=7)
    unchanged = {field.name for field in fields(Run)} - {"state", "version"}
    assert all(getattr(copy, name) is getattr(run, name) for name in unchanged)
    assert run == a_run(state=State.TRIGGERING, attempt=2)


def test_a_field_that_a_run_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError, match="stat"):
        altered(a_run(), stat=State.POLLING)
