"""A worker whose web part cannot start says so, where it would otherwise run without its console."""

import sys
from contextlib import AsyncExitStack

import pytest

from tests.support.clock.manual import ManualClock
from worker.app.web import NoWorker, installation_name, open_web
from worker.config.settings import WEB, read_settings
from worker.core.errors import ConfigError
from worker.store.sqlite.tables import SqliteTables
from worker.telemetry.meters import Meters


async def opened(listen: str) -> None:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        tables = SqliteTables.in_memory(clock)
        await tables.start()
        stack.push_async_callback(tables.stop)
        settings = read_settings({WEB: listen})
        first = await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
        again = read_settings({WEB: str(first)})
        await open_web(stack, again, tables=tables, clock=clock, health=NoWorker(), meters=Meters())


@pytest.mark.parametrize(
    "missing", ["worker.web.api.application", "worker.web.console.pages.application", "uvicorn.config"]
)
async def test_a_library_that_cannot_be_loaded_is_a_mistake_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "worker.web.server", raising=False)

    with pytest.raises(ConfigError, match=r"INTERLOCK_WEB is set, but .* cannot be loaded: .*unset"):
        await opened("127.0.0.1:0")


async def test_an_address_that_another_program_uses_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigError, match="it is in use; choose another address with INTERLOCK_WEB"):
        await opened("127.0.0.1:0")


@pytest.mark.parametrize("listen", ["8040", "127.0.0.1", "127.0.0.1:port", ":"])
async def test_a_text_that_is_no_address_is_a_mistake_in_the_settings(listen: str) -> None:
    with pytest.raises(ConfigError, match="INTERLOCK_WEB"):
        await opened(listen)


@pytest.mark.parametrize(
    ("store", "given", "name"),
    [
        ("sqlite:///prod.db", "", "prod.db"),
        ("sqlite:///prod.db", "staging", "staging"),
        ("dynamodb://interlock-prod?region=eu-west-1", "", "interlock-prod"),
        ("dynamodb://?region=eu-west-1&control=flow&joblog=b-joblog&rerun=c-rerun&events=d-events", "", "flow"),
        ("redis://cache:6379/0?prefix=staging", "", "staging"),
    ],
)
def test_an_installation_has_a_name(store: str, given: str, name: str) -> None:
    settings = read_settings({"INTERLOCK_STORE": store, "INTERLOCK_NAME": given})

    assert installation_name(settings) == name


async def test_a_session_key_that_could_be_guessed_is_refused() -> None:
    clock, tokens = ManualClock(), f"ann:operator:{'0' * 64}"
    settings = read_settings({WEB: "127.0.0.1:0", "INTERLOCK_WEB_TOKENS": tokens, "INTERLOCK_WEB_SESSION_KEY": "short"})
    async with AsyncExitStack() as stack:
        tables = SqliteTables.in_memory(clock)
        with pytest.raises(ConfigError, match="fewer than 32 characters") as caught:
            await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
    assert "short" not in str(caught.value)
