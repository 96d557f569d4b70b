"""How help pages look: commands stand by what they are for, an option that takes no value shows none, and no type is
named as Python names it.
"""

from typing import Any, Final, TypeAlias

from typer.core import TyperArgument, TyperGroup, TyperOption

# Typer keeps its types of contexts and commands to itself.
Private: TypeAlias = Any

# What is needed first comes first. A command that is in none stands above them all.
PANELS: Final = {
    "Begin": ("demo",),
    "Pipeline files": ("validate", "plan", "schema"),
    "The store": ("store", "pipelines", "sensor"),
    "Running": ("run", "doctor", "inbox", "migrate"),
    "Seeing what is": ("status", "explain", "history", "events", "schedule"),
    "Asking for something": ("rerun", "replay", "cancel", "pause", "resume"),
    "Care": ("dlq", "leases", "watchdog"),
}
PANEL_OF: Final = {command: panel for panel, commands in PANELS.items() for command in commands}


class PlainGroup(TyperGroup):
    """Lists commands in panels, and says nothing twice.

    Typer writes `<bool>` beside every flag, as if `--yes true` were meant, and `<list[Path]>` beside what is named
    already.
    """

    def list_commands(self, ctx: Private) -> list[str]:
        order = list(PANEL_OF)
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else -1)

    def get_command(self, ctx: Private, cmd_name: str) -> Private:
        found = super().get_command(ctx, cmd_name)
        _show_plainly(found, ctx)
        _put_into_panel(found, cmd_name)
        return found

    def get_help_option(self, ctx: Private) -> TyperOption | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def _put_into_panel(command: Private, name: str) -> None:
    if command is not None and name in PANEL_OF:
        command.rich_help_panel = PANEL_OF[name]


def _show_plainly(command: Private, ctx: Private) -> None:
    """Of a group: of all its commands."""
    if command is None:
        return
    for each in (*command.params, command.get_help_option(ctx)):
        match each:
            case TyperOption(is_flag=True):
                each.metavar = ""
            case TyperOption(metavar=None) if each.bare_type() == "str":
                each.metavar = "TEXT"
            case TyperArgument():
                each.display_type_rich = _nothing
            case _:
                pass
    for member in getattr(command, "commands", {}).values():
        _show_plainly(member, ctx)


def _nothing(ctx: Private) -> None:
    """What is said beside an argument whose name says what it is."""
