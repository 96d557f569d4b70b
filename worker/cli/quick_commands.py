"""Run the commands that programs call most often without loading Typer.

Typer takes longer to load than such a command takes to work. A command line that is not plainly correct goes to Typer,
which shows help and reports errors. A test compares the options here with those that Typer knows.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from worker.cli.terminal.shell_variables import COMPLETION_VARIABLE
from worker.runtime.clock import Clock

INTERRUPTED: Final = 130  # as Typer exits after Ctrl-C

Value: TypeAlias = str | bool | int


class Arguments(NamedTuple):
    """Holds what a command line gives: its arguments in order, and its options by their long names."""

    given: Sequence[str]
    options: Mapping[str, Value]

    def text(self, option: str) -> str | None:
        value = self.options.get(option)
        return value if isinstance(value, str) else None

    def number(self, option: str, default: int) -> int:
        value = self.options.get(option, default)
        return value if isinstance(value, int) else default

    def is_set(self, option: str) -> bool:
        return option in self.options


class QuickCommand(NamedTuple):
    """Describes a command: how many arguments it takes (`most` None: any number), and its options."""

    words: tuple[str, ...]
    least: int
    most: int | None
    run: Callable[[Arguments, Clock], int]
    texts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    numbers: Mapping[str, range] = {}
    short: Mapping[str, str] = {}


def _put_sensor(arguments: Arguments, clock: Clock) -> int:
    from worker.cli.commands.sensor_rows import PutRequest, put_sensor  # noqa: PLC0415

    pipeline, key, *fields = arguments.given
    request = PutRequest(
        pipeline=pipeline,
        key=key,
        fields=fields,
        data=arguments.text("--data"),
        period=arguments.text("--period"),
        as_json=arguments.is_set("--json"),
    )
    return put_sensor(clock, arguments.text("--store"), request)


def _show_status(arguments: Arguments, clock: Clock) -> int:
    from worker.cli.commands.status_table import DAYS, LIMIT, StatusRequest, show_runs  # noqa: PLC0415
    from worker.core.model.ids import PipelineId  # noqa: PLC0415

    request = StatusRequest(
        pipeline=PipelineId(arguments.given[0]) if arguments.given and arguments.given[0] else None,
        days=arguments.number("--days", DAYS),
        limit=arguments.number("--limit", LIMIT),
        as_json=arguments.is_set("--json"),
    )
    return show_runs(clock, arguments.text("--store"), request, watch=arguments.is_set("--watch"))


QUICK_COMMANDS: Final = (
    QuickCommand(
        words=("sensor", "put"),
        least=2,
        most=None,
        run=_put_sensor,
        texts=frozenset({"--data", "--period", "--store"}),
        flags=frozenset({"--json"}),
    ),
    QuickCommand(
        words=("status",),
        least=0,
        most=1,
        run=_show_status,
        texts=frozenset({"--store"}),
        flags=frozenset({"--watch", "--json"}),
        numbers={"--days": range(1, 31), "--limit": range(1, 1001)},
        short={"-w": "--watch"},
    ),
)


def run_quickly(words: Sequence[str], clock: Clock) -> int | None:
    """Run a quick command and return its exit code; None if Typer must read this command line."""
    if os.environ.get(COMPLETION_VARIABLE):
        return None
    for command in QUICK_COMMANDS:
        if tuple(words[: len(command.words)]) == command.words:
            arguments = read_arguments(command, words[len(command.words) :])
            return None if arguments is None else _run(command, arguments, clock)
    return None


def _run(command: QuickCommand, arguments: Arguments, clock: Clock) -> int:
    try:
        return command.run(arguments, clock)
    except KeyboardInterrupt:
        return INTERRUPTED


def read_arguments(command: QuickCommand, words: Sequence[str]) -> Arguments | None:
    """Read the words after a command's name; None if any of them needs Typer."""
    given: list[str] = []
    options: dict[str, Value] = {}
    rest = iter(words)
    for word in rest:
        if not _is_plain(word):
            return None
        if not word.startswith("-"):
            given.append(word)
            continue
        name, value = _read_option(command, word, rest)
        if value is None or name in options:
            return None
        options[name] = value
    if len(given) < command.least or (command.most is not None and len(given) > command.most):
        return None
    return Arguments(given, options)


def _read_option(command: QuickCommand, word: str, rest: Iterator[str]) -> tuple[str, Value | None]:
    name, is_joined, joined = word.partition("=")
    name = command.short.get(name, name)
    if name in command.flags:
        return name, None if is_joined else True
    if name not in command.texts and name not in command.numbers:
        return name, None
    value = joined if is_joined else next(rest, "")
    # Typer decides what an empty value means, and whether a word that looks like an option is one.
    if not value or value.startswith("-") or not _is_plain(value):
        return name, None
    return name, value if name in command.texts else _number(value, command.numbers[name])


def _number(text: str, allowed: range) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(allowed.stop))):
        return None
    return int(text) if int(text) in allowed else None


def _is_plain(word: str) -> bool:
    """Return whether UTF-8 can encode a word; Typer reports other arguments."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
