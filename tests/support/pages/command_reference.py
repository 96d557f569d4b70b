"""The commands of docs/commands.md, made from the program's own help: usage, arguments, options, examples, exit codes.

`python -m tests.support.pages.command_reference` updates the page; a test fails while it is outdated.
"""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

from typer.core import TyperArgument

from tests.support.builders.command_line import loaded_commands
from worker.cli.catalogue import PAGE as ROOT_PAGE
from worker.cli.terminal.command_list import CommandPanel
from worker.cli.terminal.store_access import EXIT_CODES

PAGE: Final = Path(__file__).parents[3] / "docs" / "commands.md"
_GROUPS: Final = re.compile(r"(?P<begin><!-- commands -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
_CODE: Final = re.compile(r"(`[^`]*`)")
_OPTION: Final = re.compile(r"(?<![\w/-])(--?[a-z][a-z-]*)\b")

# Typer does not export its types of commands and parameters.
Private: TypeAlias = Any


def with_fresh_commands(page: str) -> str:
    text = "\n".join(line for panel in ROOT_PAGE.panels for line in _group(panel))
    return _GROUPS.sub(lambda found: f"{found['begin']}{text}\n{found['end']}", page)


def _group(panel: CommandPanel) -> Iterator[str]:
    yield from (f"## {panel.title}", "", "| Command | What it does |", "| --- | --- |")
    for entry in panel.commands:
        yield f"| [`{entry.name}`](#interlock-{entry.name}) | {entry.summary} |"
    yield ""
    for entry in panel.commands:
        command = loaded_commands()[entry.name]
        yield from _command(f"interlock {entry.name}", command, "###")
        for name, member in getattr(command, "commands", {}).items():
            yield from _command(f"interlock {entry.name} {name}", member, "####")


def _command(path: str, command: Private, level: str) -> Iterator[str]:
    yield from (f"{level} `{path}`", "")
    members = getattr(command, "commands", {})
    if members:
        yield from (prose(command.help or ""), "", "| Command | What it does |", "| --- | --- |")
        for name, member in members.items():
            anchor = f"{path} {name}".replace(" ", "-")
            yield f"| [`{name}`](#{anchor}) | {prose(_summary(member))} |"
        yield ""
        return
    first, *rest = (command.help or "").strip().split("\n\n")
    yield from (prose(first), "", "```text", _usage(path, command), "```", "")
    for paragraph in (each for each in rest if not each.startswith("\b")):
        yield from (prose(paragraph), "")
    yield from _parameters(command)
    for block in (each for each in rest if each.startswith("\b")):
        title, _, lines = block.removeprefix("\b\n").partition("\n")
        if block.strip("\n") == EXIT_CODES.strip("\n"):
            yield from ("Exit codes: 0, 1, 2 and 3, [as in every command](#exit-codes).", "")
            continue
        yield from (title, "", "```text", re.sub(r"^ {2}", "", lines, flags=re.MULTILINE).rstrip(), "```", "")


def _summary(command: Private) -> str:
    return (command.help or "").strip().partition("\n\n")[0]


def _usage(path: str, command: Private) -> str:
    shown = [_argument(each) for each in command.params if isinstance(each, TyperArgument)]
    required = [_spelled(each) for each in _options(command) if each.required]
    rest = ["[OPTIONS]"] if any(not each.required for each in _options(command)) else []
    return " ".join([path, *shown, *required, *rest])


def _argument(argument: Private) -> str:
    name = f"{argument.metavar}..." if argument.nargs == -1 else argument.metavar
    return name if argument.required else f"[{name}]"


def _options(command: Private) -> list[Private]:
    return [each for each in command.params if not isinstance(each, TyperArgument) and not each.hidden]


def _parameters(command: Private) -> Iterator[str]:
    if not command.params:
        return
    yield from ("| Argument or option | Default | Meaning |", "| --- | --- | --- |")
    for each in command.params:
        name = str(each.metavar) if isinstance(each, TyperArgument) else _spelled(each)
        yield f"| `{_cell(name)}` | {_cell(_default(each))} | {prose(each.help or '')} |"
    yield ""


def _spelled(option: Private) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    is_flag = option.is_flag or option.metavar == ""
    return names if is_flag else f"{names} {option.metavar or _type(option)}"


def _type(option: Private) -> str:
    return {"Path": "PATH", "int": "N"}.get(option.bare_type(), "VALUE")


def _default(parameter: Private) -> str:
    if parameter.required:
        return "required"
    if isinstance(getattr(parameter, "show_default", None), str):
        return prose(parameter.show_default)
    value = parameter.default
    if value in (None, "", False):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def prose(text: str) -> str:
    """Return help as Markdown, in which options are code: the site would make a dash of two hyphens."""
    parts = _CODE.split(" ".join(text.split()))
    return _cell("".join(part if part.startswith("`") else _marked(part) for part in parts))


def _marked(text: str) -> str:
    escaped = re.sub(r"([*_<\[])", r"\\\1", text)
    return _OPTION.sub(r"`\1`", escaped)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_fresh_commands(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
