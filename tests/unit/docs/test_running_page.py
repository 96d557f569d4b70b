"""The page about running a worker lists the settings that the program reads."""

from tests.support.pages.settings_table import PAGE, with_fresh_table


def test_the_table_of_settings_is_that_of_the_program() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert "| `INTERLOCK_STORE` |" in page
    assert page == with_fresh_table(page), "run `python -m tests.support.pages.settings_table`"
