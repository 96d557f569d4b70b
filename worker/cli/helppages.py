"""How help pages look: an option that takes no value shows none."""

from typing import Any

from typer.core import TyperGroup, TyperOption


class PlainGroup(TyperGroup):
    """Typer writes `<bool>` beside every flag, as if `--yes true` were meant. Its own types of these are private."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        found = super().get_command(ctx, cmd_name)
        _show_no_value(found, ctx)
        return found

    def get_help_option(self, ctx: Any) -> TyperOption | None:  # noqa: ANN401
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def _show_no_value(command: Any, ctx: Any) -> None:  # noqa: ANN401
    """Of a group: of all its commands."""
    if command is None:
        return
    for option in (*command.params, command.get_help_option(ctx)):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    for member in getattr(command, "commands", {}).values():
        _show_no_value(member, ctx)
