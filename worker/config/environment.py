"""Declares environment variables as dataclass fields, each with parser, default and description."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import reduce
from typing import Any, Final, TypeAlias, TypeVar, cast

from worker.core.errors import ConfigError

T = TypeVar("T")
# Takes the variable's name, for messages, and its text. Raises `ConfigError`.
Parse: TypeAlias = Callable[[str, str], T]

_KEY: Final = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Describes one environment variable: its parser, and its documentation for users."""

    name: str
    parse: Parse[object]
    default: str  # as a user would write it; empty if unset
    description: str
    used_by: str
    see: str = ""  # the page in docs/ with details
    is_secret: bool = False
    may_name_file: bool = False  # its text, or the path of a file with it
    needs: str = ""  # the variable without which this one has no effect
    no_effect_off_aws: str = ""  # why a worker that is not on AWS ignores it; empty if it does not
    old_name: str = ""  # an earlier name, which is still read
    path: tuple[str, ...] = ()  # the field that holds its value

    def given(self, environment: Mapping[str, str]) -> tuple[str, str]:
        """Return its text and the variable that has it; an empty variable counts as unset."""
        text = environment.get(self.name, "")
        old = environment.get(self.old_name, "") if self.old_name and not text else ""
        return (old, self.old_name) if old else (text, self.name)

    def read(self, environment: Mapping[str, str]) -> object:
        """Parse its text or its default. Raises `ConfigError`, also if its two names contradict each other."""
        text, name = self.given(environment)
        value, old = self.parse(name, text or self.default), environment.get(self.old_name, "")
        if text and old and self.parse(self.old_name, old) != value:
            raise ConfigError(
                f"{self.name} is {text!r} and {self.old_name}, its earlier name, is {old!r}; unset {self.old_name}"
            )
        return value

    def value_in(self, group: object) -> object:
        """Return its value in the dataclass that `settings_of` was asked about."""
        return reduce(getattr, self.path, group)


def setting(
    name: str,
    parse: Parse[T],
    description: str,
    *,
    used_by: str,
    default: str = "",
    see: str = "",
    is_secret: bool = False,
    may_name_file: bool = False,
    needs: str = "",
    no_effect_off_aws: str = "",
    old_name: str = "",
) -> T:
    """Declare a dataclass field that holds the value of an environment variable."""
    made = Setting(
        name=name,
        parse=parse,
        default=default,
        description=description,
        used_by=used_by,
        see=see,
        is_secret=is_secret,
        may_name_file=may_name_file,
        needs=needs,
        no_effect_off_aws=no_effect_off_aws,
        old_name=old_name,
    )
    return field(default_factory=lambda: parse(name, default), repr=not is_secret, metadata={_KEY: made})


def settings_of(group: type[object], *path: str) -> Iterator[Setting]:
    """Yield the settings of a dataclass and of the dataclasses that are its other fields."""
    for each in _fields(group):
        here = (*path, each.name)
        if _KEY in each.metadata:
            yield replace(each.metadata[_KEY], path=here)
        else:
            yield from settings_of(cast("type[object]", each.type), *here)


def read_environment(group: type[T], environment: Mapping[str, str]) -> T:
    """Make a dataclass of settings from an environment. Raises `ConfigError`."""
    values = {each.name: _read(each, environment) for each in _fields(group)}
    return group(**values)


def _read(each: Field[Any], environment: Mapping[str, str]) -> object:
    declared: Setting | None = each.metadata.get(_KEY)
    if declared is None:
        return read_environment(cast("type[object]", each.type), environment)
    return declared.read(environment)


def _fields(group: type[object]) -> tuple[Field[Any], ...]:
    return fields(cast("Any", group))
