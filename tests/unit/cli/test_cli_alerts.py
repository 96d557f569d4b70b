"""`interlock alerts test`: what each target answers."""

import pytest

from tests.support.builders.command_line import interlock


@pytest.mark.usefixtures("here")
def test_a_target_that_cannot_be_reached_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_WEBHOOK_URL", "http://127.0.0.1:9/hook")
    monkeypatch.setenv("INTERLOCK_WEBHOOK_SECRET", "a-long-random-text")

    result = interlock("alerts", "test")

    assert result.exit_code == 1
    assert result.stdout.startswith("webhook: nothing could be sent to 127.0.0.1: its address is not public")
