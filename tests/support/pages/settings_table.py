"""The table of settings in docs/running.md, made from the code.

`python -m tests.support.pages.settings_table` updates the page; a test fails while it is outdated.
"""

import re
from pathlib import Path

from worker.config.environment import Setting
from worker.config.settings import SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "running.md"
_TABLE = re.compile(r"(?P<begin><!-- settings -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def with_fresh_table(page: str) -> str:
    return _TABLE.sub(lambda found: f"{found['begin']}{table()}{found['end']}", page)


def table() -> str:
    return "\n".join(
        ["| Variable | Default | Used by | Meaning |", "| --- | --- | --- | --- |", *map(_row, SETTINGS), ""]
    )


def _row(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default else ""
    used_by = f"{setting.used_by} (AWS only)" if setting.no_effect_off_aws else setting.used_by
    page = f" See [{Path(setting.see.partition('#')[0]).stem}]({setting.see})." if setting.see else ""
    return f"| `{setting.name}` | {default} | {used_by} | {setting.description}{page} |"


if __name__ == "__main__":
    PAGE.write_text(with_fresh_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
