"""The console of `make deploy-check`: its rules on a load balancer, and its process with the settings of its task."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deploy.steps import Failed
from tests.support.aws.emulators import AWS_ENVIRONMENT
from tests.support.worlds.installation import client
from tests.support.worlds.live_worker import live_web
from tests.support.worlds.web import OPERATOR, TOKENS, VIEWER, bearer
from worker.jobs.secrets import MANAGED

READ, ACT = "/api/v1/pipelines", "/api/v1/pipelines/orders/pause"


async def check_rules(endpoint: str, listener: str, web: Mapping[str, Any]) -> None:
    """The listener signs people in before it forwards them, and the service is behind it. Raises `Failed`."""
    async with client("elbv2", endpoint) as balancing, client("ecs", endpoint) as ecs:
        described = (await balancing.describe_rules(ListenerArn=listener))["Rules"]
        cluster = web["cluster"]
        [service] = (await ecs.describe_services(cluster=cluster, services=[web["service"]]))["services"]
    rules = sorted(
        (each for each in described if each["Priority"] != "default"), key=lambda each: int(each["Priority"])
    )
    actions = [[action["Type"] for action in _in_order(each["Actions"])] for each in rules]
    if actions != [["forward"], ["forward"], ["authenticate-oidc", "forward"]]:
        raise Failed(f"the rules of the console do {actions}")
    targets = {action["TargetGroupArn"] for rule in rules for action in rule["Actions"] if action["Type"] == "forward"}
    behind = {each["targetGroupArn"] for each in service["loadBalancers"]}
    if not targets == behind == {web["target_group_arn"]}:
        raise Failed(f"the rules forward to {targets}, and the service is behind {behind}")


def _in_order(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(actions, key=lambda each: int(each.get("Order", 1)))


async def give_tokens(endpoint: str, settings: Mapping[str, str]) -> None:
    """Put the tokens of programs into the secret that the task's settings name, as whoever deploys does."""
    async with client("secretsmanager", endpoint) as secrets:
        name = settings["INTERLOCK_WEB_TOKENS"].removeprefix(MANAGED)
        await secrets.put_secret_value(SecretId=name, SecretString=TOKENS)


def use_console(settings: Mapping[str, str], store: str, endpoint: str, work: Path) -> None:
    """Run the console with its task's settings: it knows programs by their tokens, and nobody else. Raises `Failed`."""
    # The emulator ends ARNs in letters that AWS does not use there.
    balancer = f"{settings['INTERLOCK_WEB_ALB'].rpartition('/')[0]}/{'5' * 16}"
    here = {"INTERLOCK_STORE": store, "INTERLOCK_WEB_ALB": balancer, "AWS_ENDPOINT_URL": endpoint}
    try:
        _ask_console({**AWS_ENVIRONMENT, **settings, **here}, work)
    except AssertionError as problem:
        raise Failed(f"the console did not start with the settings of its task: {problem}") from problem


def _ask_console(variables: Mapping[str, str], work: Path) -> None:
    with live_web(work, **variables) as web:
        lines = [json.loads(line) for line in web.log.read_text().splitlines() if line.startswith("{")]
        [served] = [line for line in lines if line["event"] == "web.served"]
        base = f"http://127.0.0.1:{served['port']}"
        reason = {"reason": "a test"}
        expected = [
            (200, _status(f"{base}/livez")),
            (401, _status(base + READ)),
            (401, _status(base + READ, {"x-amzn-oidc-data": "forged"})),
            (401, _status(base + ACT, body=reason)),
            (200, _status(base + READ, bearer(VIEWER))),
            (403, _status(base + ACT, bearer(VIEWER), body=reason)),
            (202, _status(base + ACT, bearer(OPERATOR), body=reason)),
        ]
        if any(wanted != found for wanted, found in expected):
            raise Failed(f"the console answered {[found for _, found in expected]}, and not {[w for w, _ in expected]}")
        if web.stop() != 0:
            raise Failed("the console did not end in order after SIGTERM")


def _status(address: str, headers: Mapping[str, str] | None = None, *, body: object = None) -> int:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=50) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
