"""The tables of variables and outputs in deploy/terraform/README.md, made from the module.

`python -m tests.support.pages.terraform_table` updates the page; a test fails while it is outdated.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.aws.terraform_files import MODULE, bare, parsed

PAGE: Final = MODULE / "README.md"
_DEFAULT_MAX: Final = 40  # a longer default is in the file only
_TABLE = re.compile(r"(?P<begin><!-- (?P<name>variables|outputs) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def with_fresh_tables(page: str) -> str:
    return _TABLE.sub(lambda found: f"{found['begin']}{_TABLES[found['name']]()}{found['end']}", page)


def _variables() -> str:
    rows = [
        f"| `{name}` | {_type_of(said)} | {_default_of(said)} | {_text_of(said)} |"
        for name, said in _blocks(MODULE / "variables.tf", "variable")
    ]
    return "\n".join(["| Variable | Type | Default | Meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _outputs() -> str:
    rows = [f"| `{name}` | {_text_of(said)} |" for name, said in _blocks(MODULE / "outputs.tf", "output")]
    return "\n".join(["| Output | Meaning |", "| --- | --- |", *rows, ""])


_TABLES: Final = {"variables": _variables, "outputs": _outputs}


def _blocks(path: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in parsed(path)[kind]:
        for name, said in block.items():
            yield str(bare(name)), said


def _type_of(said: dict[str, Any]) -> str:
    """Return the outer types alone: the members of an object are told in words."""
    written = str(bare(said["type"])).removeprefix("${").removesuffix("}")
    outer, _, members = written.partition("object(")
    return f"`{outer}object{')' * outer.count('(')}`" if members else f"`{written}`"


def _default_of(said: dict[str, Any]) -> str:
    if "default" not in said:
        return "required"
    value = bare(said["default"])
    if value in ("", None, [], {}, "null", "${null}"):
        return "none"
    written = str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"')
    return f"`{written}`" if len(written) <= _DEFAULT_MAX else "see the file"


def _text_of(said: dict[str, Any]) -> str:
    text = str(bare(said["description"]))
    heredoc = re.fullmatch(r"<<-?(\w+)\n(?P<text>.*?)\n?\s*\1", text, flags=re.DOTALL)
    words = (heredoc["text"] if heredoc else text).split()
    return " ".join(words).replace("|", "\\|").replace('\\"', '"').replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(with_fresh_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
