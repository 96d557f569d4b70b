"""The console as a process of its own on DynamoDB, and what it calls there."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws import calls, task_roles
from tests.support.aws.calls import Call, Heard
from tests.support.aws.emulators import AWS_ENVIRONMENT, ministack
from tests.support.worlds.installation import endpoint_of, install, write_pipeline
from tests.support.worlds.live_worker import interlock, live_web
from tests.support.worlds.web import OPERATOR, TOKENS, bearer

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(240)]


async def test_the_console_serves_and_acts_with_what_its_role_allows(tmp_path: Path) -> None:
    installation = await install(endpoint_of(ministack()))
    variables = {**AWS_ENVIRONMENT, "INTERLOCK_STORE": installation.store}
    write_pipeline(tmp_path / "pipelines", "orders", "arn:aws:states:eu-west-1:000000000000:stateMachine:m")
    pushed = await asyncio.to_thread(interlock, "pipelines", "push", "pipelines", "--yes", at=tmp_path, **variables)
    assert pushed.returncode == 0, pushed.stderr

    def use_it() -> None:
        with live_web(tmp_path, INTERLOCK_WEB_TOKENS=TOKENS, **variables) as web:
            lines = [json.loads(line) for line in web.log.read_text().splitlines() if line.startswith("{")]
            [served] = [line for line in lines if line["event"] == "web.served"]
            base = f"http://{served['host']}:{served['port']}"
            assert _ask(f"{base}/livez")["ok"] is True
            assert "orders" in str(_ask(f"{base}/api/v1/pipelines"))
            assert _ask(f"{base}/api/v1/pipelines/orders/pause", {"reason": "a test"})["type"] == "pause"
            assert web.stop() == 0

    await asyncio.to_thread(use_it)

    # That it keeps to what its role allows is judged at the end, for all tests together.
    heard = calls.load(Path(os.environ[calls.DIRECTORY]))
    paused, told = Call("dynamodb:PutItem", "control", "PIPELINE#…"), Call("dynamodb:PutItem", "events", "PIPELINE#…")
    assert {Heard(paused, task_roles.WEB_OPERATOR), Heard(told, task_roles.WEB_OPERATOR)} <= heard
    assert task_roles.not_allowed(each for each in heard if each.roles == task_roles.WEB_OPERATOR) == []


def _ask(address: str, body: object = None) -> Any:  # noqa: ANN401  any JSON
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **bearer(OPERATOR)}
    with urllib.request.urlopen(urllib.request.Request(address, content, headers), timeout=50) as answer:
        return json.load(answer)
