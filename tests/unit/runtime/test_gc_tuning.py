"""The collector is paused for as long as asked, and stays off if it was off."""

import gc

import pytest

from worker.runtime.gc_tuning import collector_paused


def read_a_bad_file() -> None:
    with collector_paused():
        assert not gc.isenabled()
        raise ValueError("bad file")


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_afterwards_as_it_was_even_after_an_error(*, is_on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="bad file"):
            read_a_bad_file()
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()
