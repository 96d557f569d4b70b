"""A job's configuration as its runner reads it from a row."""

from decimal import Decimal

import pytest

from worker.jobs.spec_fields import UnusableConfig, parse_config
from worker.jobs.specs import CommandConfig, HttpConfig


def test_numbers_may_come_back_from_the_store_as_decimals() -> None:
    parsed = parse_config(CommandConfig, {"command": ("a", "b"), "timeout": Decimal(30)})

    assert (parsed.command, parsed.timeout) == (["a", "b"], 30)


def test_what_is_required_must_be_there() -> None:
    with pytest.raises(UnusableConfig, match="url is missing"):
        parse_config(HttpConfig, {})


def test_a_problem_is_named_without_repeating_the_value() -> None:
    with pytest.raises(UnusableConfig, match="headers") as caught:
        parse_config(HttpConfig, {"url": "https://example.com", "headers": {"X-Key": ["hunter22"]}})

    assert "hunter22" not in str(caught.value)
