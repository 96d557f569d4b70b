"""Which store a command uses, and what a wrong one is told."""

import pytest

from worker.core.errors import ConfigError
from worker.settings import DEFAULT_STORE, STORE, read_settings


def test_without_settings_the_store_is_a_file_in_the_current_directory() -> None:
    assert read_settings({}).store == DEFAULT_STORE == "sqlite:///interlock.db"


def test_the_environment_names_the_store() -> None:
    assert read_settings({STORE: "dynamodb://interlock"}).store == "dynamodb://interlock"


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_settings({STORE: ""}).store == DEFAULT_STORE


def test_the_command_line_wins_over_the_environment() -> None:
    assert read_settings({STORE: "dynamodb://interlock"}, store="sqlite:///a.db").store == "sqlite:///a.db"


@pytest.mark.parametrize("url", ["interlock.db", "postgres://x", "sqlite://interlock.db", "dynamodb://"])
def test_a_wrong_url_is_refused_with_what_is_accepted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///interlock\.db"):
        read_settings({STORE: url})
