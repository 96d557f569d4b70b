"""`interlock settings`: show every setting with its value and its origin; secrets stay hidden."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import typer

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl
from worker.cli.terminal.store_session import Exit
from worker.config.environment import Setting
from worker.config.settings import SETTINGS, mistyped, read_settings, renamed, without_effect
from worker.config.store_setting import STORE
from worker.core.errors import ConfigError
from worker.core.model.values import Json
from worker.store.url import DynamoPlace, locate, without_secrets

TEXT_MAX: Final = 100  # a setting may hold the text of a whole file
HIDDEN: Final = "(hidden)"
_CREDENTIALS: Final = re.compile(r"(?<=//)[^/@\s]+(?=@)")


class SettingOrigin(StrEnum):
    """Lists where the value of a setting can come from."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    FILE = "file"  # the variable names a file, and the file has the value
    OPTION = "option"  # of the command line


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """Holds one setting as this environment gives it. `text` shows no secret; empty means unset."""

    setting: Setting
    text: str
    origin: SettingOrigin
    problem: str = ""  # why its text cannot be used
    no_effect: str = ""  # why it changes nothing although it is set


def settings_in_force(environment: Mapping[str, str], store: str | None) -> list[SettingInForce]:
    """Return every setting as a worker with this environment and this `--store` has it."""
    unused = _without_effect(environment, store)
    return [_in_force(each, environment, store, unused.get(each.name, "")) for each in SETTINGS]


def _in_force(setting: Setting, environment: Mapping[str, str], store: str | None, no_effect: str) -> SettingInForce:
    given, _ = setting.given(environment)
    if setting.name == STORE and store:
        given, origin = store, SettingOrigin.OPTION
        environment = {**environment, STORE: store}
    elif not given:
        origin = SettingOrigin.DEFAULT
    elif setting.may_name_file and "\n" not in given and ":" not in given:
        origin = SettingOrigin.FILE
    else:
        origin = SettingOrigin.ENVIRONMENT
    return SettingInForce(
        setting=setting,
        text=_without_secret(setting, given or setting.default),
        origin=origin,
        problem=_problem(setting, environment),
        no_effect=no_effect,
    )


def _problem(setting: Setting, environment: Mapping[str, str]) -> str:
    try:
        setting.read(environment)
    except ConfigError as wrong:
        return str(wrong)
    return ""


def _without_secret(setting: Setting, text: str) -> str:
    if setting.is_secret and text:
        return HIDDEN
    return _CREDENTIALS.sub("***", without_secrets(text))  # an address may carry a password, wherever it stands


def _without_effect(environment: Mapping[str, str], store: str | None) -> dict[str, str]:
    try:
        settings = read_settings(environment, store=store)
        return dict(without_effect(settings, is_aws=isinstance(locate(settings.store), DynamoPlace)))
    except ConfigError:
        return {}  # each problem is shown with its setting


def run_settings(screen: Screen, environment: Mapping[str, str], store: str | None, *, as_json: bool) -> int:
    found = settings_in_force(environment, store)
    if as_json:
        for each in found:
            screen.record(_record(each))
    else:
        _show(screen, found)
    for name, meant in mistyped(environment).items():
        screen.remark(f"warning: {name} is no setting; if {meant} is meant, rename it", style="yellow")
    for old, new in renamed(environment).items():
        screen.remark(f"warning: {old} is the earlier name of {new}; rename it", style="yellow")
    return Exit.WRONG if any(each.problem for each in found) else Exit.DONE


def _show(screen: Screen, found: list[SettingInForce]) -> None:
    rows = [("setting", "value", "origin"), *((each.setting.name, _shown(each.text), each.origin) for each in found)]
    styles = ["bold", *("red" if each.problem else "dim" if _is_default(each) else "" for each in found)]
    screen.table(rows, styles=styles, indent=0)
    for each in found:
        if each.problem:
            screen.remark(f"error: {each.problem}", style="red")
        elif each.no_effect:
            screen.remark(f"warning: {each.setting.name} has no effect: {each.no_effect}", style="yellow")


def _is_default(each: SettingInForce) -> bool:
    return each.origin is SettingOrigin.DEFAULT


def _shown(text: str) -> str:
    """Return a text that fits a table; one that was cut says so."""
    line = " ".join(text.split())
    return f"{line[:TEXT_MAX]}… ({len(text):,} characters)" if len(line) > TEXT_MAX else line or "(unset)"


def _record(each: SettingInForce) -> dict[str, Json]:
    setting = each.setting
    return {
        "type": "setting",
        "name": setting.name,
        "value": None if setting.is_secret else each.text or None,
        "origin": each.origin.value,
        "isSet": not _is_default(each),
        "isSecret": setting.is_secret,
        "default": setting.default or None,
        "usedBy": setting.used_by,
        "description": setting.description,
        "problem": each.problem or None,
        "noEffect": each.no_effect or None,
    }


settings_app = typer.Typer()

SETTINGS_HELP = f"""Show every setting: its value in force and where it comes from.

A setting comes from the environment, from a file that a variable names, from an option, or is the default. Secrets \
are hidden. `interlock doctor` also checks that what they name can be reached.

\b
Examples:
  interlock settings
  INTERLOCK_TIMING=fast interlock settings
  interlock settings --json

{EXIT_CODES}"""


@settings_app.command("settings", help=SETTINGS_HELP)
def settings(*, store: StoreUrl = None, as_json: AsJson = False) -> None:
    raise typer.Exit(run_settings(Screen(), os.environ, store, as_json=as_json))
