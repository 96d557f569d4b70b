"""`interlock alerts test`: send a test message to each configured alert target."""

import os
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.settings import PAGERDUTY_KEY, SLACK_TOKEN, TEAMS_URL, WEBHOOK_URL, read_settings
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.time.timestamps import format_utc


async def run_alerts_test(screen: Screen, access: StoreAccess, *, only: str | None, as_json: bool) -> int:
    """Send a test message to each target and show its answer; return 1 if one did not accept it."""
    from worker.cli.commands.operate.alert_trials import open_trials  # noqa: PLC0415  the wiring takes long to load

    settings = read_settings(os.environ, store=access.url)
    is_each_accepted = True
    async with open_trials(settings, os.environ, access.clock) as trials:
        if not trials:
            names = f"{SLACK_TOKEN}, {WEBHOOK_URL}, {PAGERDUTY_KEY} or {TEAMS_URL}"
            raise ConfigError(f"no alert target is configured here; set {names}")
        chosen = {name: send for name, send in trials.items() if only is None or name == only}
        if not chosen:
            raise ConfigError(f"there is no target {only}; the targets are {', '.join(trials)}")
        for name, send in chosen.items():
            began_s, reason = access.clock.monotonic(), None
            try:
                await send(format_utc(access.clock.now()))
            except (Rejected, RetryLater) as error:
                reason, is_each_accepted = str(error), False
            took_ms = round(1000 * (access.clock.monotonic() - began_s))
            _show(screen, name, reason, took_ms, as_json=as_json)
    return Exit.DONE if is_each_accepted else Exit.PROBLEMS


def _show(screen: Screen, name: str, reason: str | None, took_ms: int, *, as_json: bool) -> None:
    if as_json:
        record = {"target": name, "accepted": reason is None, "reason": reason, "durationMs": took_ms}
        screen.record({"type": "alertTest", **record})
    elif reason is None:
        screen.line(f"{name}: accepted the test message ({took_ms} ms)", "green")
    else:
        screen.line(f"{name}: {reason.removeprefix(f'{name}: ')}", "red")


alerts_app = typer.Typer(
    name="alerts",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Test the targets of alerts: Slack, webhook, PagerDuty, Teams.

\b
Examples:
  interlock alerts test
""",
)


@alerts_app.callback()
def alerts_group() -> None:
    """Keep `test` a command of its own: a group of one command would be that command."""


TEST_HELP = """Send a test message to each configured alert target.

It uses this environment's settings, as a worker would, and one message says that it is a test: in Slack's default \
channel, as a card in Teams, as a signed request with no events, and as a PagerDuty alert of severity info that \
resolves itself. Run it where a worker runs, after you changed a token, a key or an address.

\b
Examples:
  interlock alerts test
  interlock alerts test --target pagerduty
  interlock alerts test --json

\b
Exit codes:
  0  each target accepted the message
  1  a target did not; the output says why
  2  the command or the settings are wrong
"""


@alerts_app.command("test", help=TEST_HELP)
def send_test_messages(
    context: typer.Context,
    *,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Send to this one only, such as pagerduty or teams.OWNER.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_alerts_test(screen, at, only=target, as_json=as_json))
