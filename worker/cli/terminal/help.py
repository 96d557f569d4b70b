"""Load a command when it is invoked, and lay out the help pages.

An option that takes no value shows none, and the pages show no Python type names.
"""

import os
import sys
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias, cast

from typer import Abort, TyperException, echo
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from worker.cli.terminal.command_list import CommandEntry, RootPage
from worker.cli.terminal.console import Screen
from worker.cli.terminal.shell_variables import COMPLETION_VARIABLE
from worker.core.errors import ConfigError

# Typer does not export its types of contexts and commands.
Private: TypeAlias = Any

PROGRAM: Final = "interlock"


class LazyGroup(TyperGroup):
    """LazyGroup lists commands from their summaries and loads only the one that is invoked.

    Loading all of them takes a second.

    Its pages leave out the types that Typer adds: `<bool>` after every flag, as if `--yes true` were allowed, and
    `<list[Path]>` after an argument that has a name already.
    """

    page: ClassVar[RootPage]

    def __init__(self, **settings: Private) -> None:
        super().__init__(**settings)
        for entry in self.page.entries.values():
            self.add_command(TyperCommand(entry.name, help=entry.summary))
        for each in self.params:
            _read_quickly(each)

    def main(self, *args: Private, standalone_mode: bool = True, **settings: Private) -> Private:
        """Run a command; show a usage error as every other error, where Typer would draw a box."""
        if os.environ.get(COMPLETION_VARIABLE):
            register_shells()
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **settings)
        try:
            code = super().main(*args, standalone_mode=False, **settings)
        except TyperException as error:
            show_usage_error(error)
            sys.exit(error.exit_code)
        except Abort:
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Private, args: list[str]) -> tuple[str | None, Private, list[str]]:
        if args and args[0] not in self.page.entries and (meant := self._subcommands(args[0])):
            ctx.fail(f"no such command {args[0]!r}; did you mean {' or '.join(meant)}?")
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load_command(self.page.entries[name], ctx), rest

    def _subcommands(self, word: str) -> list[str]:
        """Return the commands of groups that have this name, such as `interlock pipelines push`."""
        groups = ((entry, get_group(entry.load())) for entry in self.page.entries.values())
        return [f"`{PROGRAM} {entry.name} {word}`" for entry, group in groups if group.name and word in group.commands]

    def format_help(self, ctx: Private, formatter: Private) -> None:  # noqa: ARG002  Typer's signature
        echo(self.page.text(), nl=False)  # as Typer does, which leaves the formatter empty

    def get_help_option(self, ctx: Private) -> TyperOption | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
            _read_quickly(option)
        return option


def show_usage_error(error: TyperException) -> None:
    if not error.format_message():
        return  # no command was given, and Typer printed the help page
    from worker.cli.terminal.store_session import show_error  # noqa: PLC0415  it also loads the stores

    show_error(Screen(), ConfigError(usage_sentence(error)))


def usage_sentence(error: TyperException) -> str:
    """Return what is wrong and, after the last semicolon, what to do, as in all messages."""
    found = error.format_message().rstrip(".").replace("Value error, ", "")
    what, meant = found, ""
    for mark in (". Did you mean ", " (Possible options: "):
        if not meant:
            what, _, meant = found.partition(mark)
    what = what[:1].lower() + what[1:]
    if meant:
        return f"{what}; did you mean {meant.rstrip(')?')}?"
    context: Private = getattr(error, "ctx", None)
    if what.startswith("no such command") and context is not None and context.parent is not None:
        return f"{what}; `{context.command_path}` has: {', '.join(context.command.commands)}"
    return what if "; " in what or context is None else f"{what}; see `{context.command_path} --help`"


def register_shells() -> None:
    """Register the shells that Typer can complete for.

    Typer does this only together with its completion options, which `interlock` does not have.
    """
    get_completion_inspect_parameters()


class LightCoercion:
    """LightCoercion accepts values that have the right type already, and passes all others to Typer.

    Typer coerces even text with pydantic, which takes longer to load than most commands take in total.
    """

    def __init__(self, parameter: Private) -> None:
        self._parameter = parameter

    def coerce(self, value: Private, param: Private, ctx: Private) -> Private:
        annotation = self._parameter.type_descriptor.annotation
        is_many = param.multiple or param.nargs == -1
        if value is None:
            return () if is_many else None
        if is_many and annotation == list[str] and not isinstance(value, str) and all(map(_is_text, value)):
            return list(value)
        if (annotation is str and _is_text(value)) or (value is param.default and type(value) is annotation):
            return value
        typers_own = cast("Private", type(self._parameter))
        return typers_own.get_runtime_param(self._parameter).coerce(value, param=param, ctx=ctx)


def _is_text(value: object) -> bool:
    """Return whether the value is text that UTF-8 can encode; Typer rejects other arguments."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_command(entry: CommandEntry, ctx: Private) -> Private:
    """Load and return a command or a group of commands.

    A module without a group name may hold several top-level commands; the entry's name selects one.
    """
    group = get_group(entry.load())
    found = group if group.name else group.commands[entry.name]
    _prepare(found, ctx)
    return found


def _prepare(command: Private, ctx: Private) -> None:
    """Set quick coercion and plain types on a command's parameters, and on those of its subcommands."""
    for each in (*command.params, command.get_help_option(ctx)):
        _read_quickly(each)
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
        _prepare(member, ctx)


def _read_quickly(parameter: Private) -> None:
    parameter.get_runtime_param = partial(LightCoercion, parameter)


def _nothing(ctx: Private) -> None:
    """Return no type for an argument, because its name is enough."""
