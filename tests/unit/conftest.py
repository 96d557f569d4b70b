"""What tests of the command line share."""

from pathlib import Path

import pytest

from worker.config.store_setting import STORE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and no store in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(STORE, raising=False)
    return tmp_path
