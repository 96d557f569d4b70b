"""The published interfaces of job targets, as JSON Schema: a fake that speaks one refuses what it does not allow.

They were written down from the providers' documentation and hold what is sent and read here.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

_HOME = Path(__file__).parents[2] / "published"


class Violation(Exception):
    """Something does not have the published form."""


def check(interface: str, name: str, value: object) -> None:
    """Raise `Violation` unless a value is what an interface calls by this name."""
    validator: Any = _validator(interface, name)  # its stub cannot say what JSON is
    problem = next(validator.iter_errors(value), None)
    if problem is not None:
        raise Violation(f"{interface} {name}: {problem.json_path}: {problem.message}")


@cache
def _validator(interface: str, name: str) -> jsonschema.Draft202012Validator:
    definitions = json.loads((_HOME / f"{interface}.json").read_text(encoding="utf-8"))["$defs"]
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
