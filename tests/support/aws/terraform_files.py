"""The Terraform module as its files say it, where Terraform itself need not be installed."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

MODULE: Final = Path(__file__).parents[3] / "deploy/terraform"
FILES: Final = sorted(MODULE.glob("*.tf"))


@cache
def parsed(path: Path) -> dict[str, Any]:
    # Loaded by those who read a file: it takes longer than most tests, and every run imports this module.
    hcl: Any = import_module("hcl2")  # its types are not whole
    with path.open() as file:
        return cast("dict[str, Any]", hcl.load(file))


def bare(value: Any) -> Any:  # noqa: ANN401 - whatever the parser gives
    """The parser keeps the quotes of texts and marks its blocks: take both away."""
    match value:
        case dict():
            members = cast("dict[str, Any]", value)
            return {bare(name): bare(each) for name, each in members.items() if not name.startswith("__")}
        case list():
            return [bare(each) for each in cast("list[Any]", value)]
        case str():
            return value.strip('"')
        case _:
            return value


@cache
def local(name: str) -> Any:  # noqa: ANN401
    for path in FILES:
        for block in parsed(path).get("locals", []):
            for key, value in block.items():
                if bare(key) == name:
                    return bare(value)
    raise KeyError(name)


@cache
def default_of(variable: str) -> Any:  # noqa: ANN401
    for path in FILES:
        for block in parsed(path).get("variable", []):
            for name, said in block.items():
                if bare(name) == variable:
                    return bare(said["default"])
    raise KeyError(variable)
