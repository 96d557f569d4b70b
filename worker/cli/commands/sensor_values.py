"""Read sensor data from the command line: `rows=1200 status=complete`, or a whole JSON object."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from worker.core.errors import ConfigError
from worker.core.model.exact_json import read_json
from worker.core.model.values import Json
from worker.store.table import ROW_BYTES_MAX

LOOKS_LIKE_JSON = ('"', "{", "[")


def sensor_data(fields: Sequence[str], data: str | None) -> dict[str, Json]:
    """Read fields and an object; a field replaces the object's field of that name. Raises `ConfigError`."""
    if not fields and data is None:
        raise ConfigError("a sensor needs data; give it as field=value, or as --data '{\"rows\": 1200}'")
    return {**(read_object(data) if data is not None else {}), **read_fields(fields)}


def read_fields(fields: Sequence[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or not name:
            raise ConfigError(f"{field!r} is not a field; write name=value, such as rows=1200")
        if name in found:
            raise ConfigError(f"the field {name!r} is given twice; leave one out")
        found[name] = read_value(name, value)
    return found


def read_value(name: str, text: str) -> Json:
    """Read a number, true, false, null or JSON as such, and everything else as text.

    Raises `ConfigError` for text that begins like JSON and is not.
    """
    try:
        return read_json(text)
    except ValueError as error:
        if not text.startswith(LOOKS_LIKE_JSON):
            return text
        raise ConfigError(
            f"the field {name!r} begins like JSON and is not ({error}); "
            f"quote it to make it text: {name}='{json.dumps(text, ensure_ascii=False)}'"
        ) from error


def read_object(source: str) -> Mapping[str, Json]:
    """Read a JSON object: typed (`{…}`), from a file (`@file`), or from standard input (`@-`).

    Raises `ConfigError`.
    """
    text = _text_of(source)
    try:
        value = read_json(text)
    except ValueError as error:
        raise ConfigError(f"--data is not JSON: {error}; give an object, such as '{{\"rows\": 1200}}'") from error
    if not isinstance(value, Mapping):
        raise ConfigError("--data is not an object; sensors hold named fields, such as '{\"rows\": 1200}'")
    return value


def _text_of(source: str) -> str:
    if not source.startswith("@"):
        return source
    try:
        if source == "@-":
            return _decoded(cast("BinaryIO", sys.stdin.buffer), "standard input")
        with Path(source[1:]).open("rb") as file:
            return _decoded(file, source[1:])
    except OSError as error:
        raise ConfigError(f"{source[1:]} cannot be read: {error.strerror or error}; name another file") from error


def _decoded(file: BinaryIO, name: str) -> str:
    content = file.read(ROW_BYTES_MAX + 1)
    if len(content) > ROW_BYTES_MAX:
        raise ConfigError(f"{name} is larger than {ROW_BYTES_MAX:,} bytes, more than a row holds; store less")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text ({error.reason}); convert it") from error
