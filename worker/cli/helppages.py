"""How help pages look: an option that takes no value shows none, and no type is named as Python names it."""

from typing import Any

from typer.core import TyperArgument, TyperGroup, TyperOption


class PlainGroup(TyperGroup):
    """Typer writes `<bool>` beside every flag, as if `--yes true` were meant, and `<list[Path]>` beside what is named
    already. Its own types of these are private.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        found = super().get_command(ctx, cmd_name)
        _show_plainly(found, ctx)
        return found

    def get_help_option(self, ctx: Any) -> TyperOption | None:  # noqa: ANN401
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def _show_plainly(command: Any, ctx: Any) -> None:  # noqa: ANN401
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


def _nothing(ctx: Any) -> None:  # noqa: ANN401
    """What is said beside an argument whose name says what it is."""
