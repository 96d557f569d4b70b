"""Store URLs: where the tables of a store are."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from worker.core.errors import ConfigError
from worker.store.table import TableName

TableNames: TypeAlias = Mapping[TableName, str]


EXAMPLES: Final = "use sqlite:///interlock.db or dynamodb://PREFIX?region=REGION"


DYNAMODB_OPTIONS: Final = frozenset({"region", "endpoint", *TableName})


TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")


class SqlitePlace(msgspec.Struct, frozen=True):
    """Locates a SQLite file: `path` without symbolic links, `named` as it was given.

    All programs that name one file thus agree on the files next to it.
    """

    path: Path
    named: Path


class DynamoPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Locates DynamoDB tables; None leaves region or endpoint to the AWS environment."""

    names: TableNames
    region: str | None
    endpoint: str | None


Place: TypeAlias = SqlitePlace | DynamoPlace


def locate(url: str) -> Place:
    """Parse a store URL. Raises `ConfigError` for a URL that names no store."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"the store {url!r} is not a URL: {error}; {EXAMPLES}") from error
    match parts.scheme:
        case "sqlite":
            named = _path(url, parts)
            return SqlitePlace(_without_links(named), named)
        case "dynamodb":
            options = _options(url, parts)
            names = _table_names(url, parts.netloc, options)
            return DynamoPlace(names=names, region=options.get("region"), endpoint=_endpoint(url, options))
        case _:
            raise ConfigError(f"the store {url!r} has no backend we know; {EXAMPLES}")


def _path(url: str, parts: SplitResult) -> Path:
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
        raise ConfigError(
            f"the store {url!r} names no file; use sqlite:///interlock.db, or four slashes for a root path"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"the store {url!r} has options, but sqlite:/// takes only a path")
    return Path(unquote(parts.path[1:]))


def _without_links(named: Path) -> Path:
    """Resolve symbolic links. A path without links stays as it was written, for use in messages."""
    try:
        resolved = named.resolve()
        return named if resolved == named.absolute() else resolved
    except RuntimeError as error:
        raise ConfigError(f"the store {named} is a link that leads back to itself; name the file") from error
    except (OSError, ValueError):
        return named  # opening it reports what is wrong


def _options(url: str, parts: SplitResult) -> Mapping[str, str]:
    if parts.path not in {"", "/"} or parts.fragment:
        raise ConfigError(f"the store {url!r} has a path; dynamodb:// takes a prefix and ?options only")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in pairs:
        if name not in DYNAMODB_OPTIONS:
            close = get_close_matches(name, DYNAMODB_OPTIONS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(DYNAMODB_OPTIONS))}"
            raise ConfigError(f"the store {url!r} has an unknown option {name!r}; {hint}")
        if not value:
            raise ConfigError(f"the store {url!r} has an empty option {name!r}; give it a value or leave it out")
    return dict(pairs)


def _endpoint(url: str, options: Mapping[str, str]) -> str | None:
    endpoint = options.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"the store {url!r} has an endpoint without http:// or https://; write it whole")
    return endpoint


def _table_names(url: str, prefix: str, options: Mapping[str, str]) -> TableNames:
    if not prefix and not all(table in options for table in TableName):
        raise ConfigError(f"the store {url!r} has no prefix; give one, or name all four tables; {EXAMPLES}")
    names = {table: options.get(table, f"{prefix}-{table}") for table in TableName}
    for name in names.values():
        if not TABLE_NAME.fullmatch(name):
            raise ConfigError(
                f"the store {url!r} needs a table {name!r}, but a table's name is 3 to 255 letters, digits, _ . and -"
            )
    if len(set(names.values())) < len(names):
        raise ConfigError(f"the store {url!r} gives two tables one name; each of the four needs its own")
    return names
