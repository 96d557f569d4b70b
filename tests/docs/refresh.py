"""Rewrite the outputs that the pages show from a real run: `python -m tests.docs.refresh [PAGE…]`.

Each page is executed in an empty folder. An output that differs only in times and ids stays as it is.
"""

import sys
import tempfile
from pathlib import Path

from tests.docs.pagefile import ROOT, pages
from tests.docs.walkthrough import walk


def main(chosen: list[str]) -> int:
    """Return 1 if a command ended with another exit code than its page says."""
    failed = 0
    for page in [Path(name).resolve() for name in chosen] or pages():
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="interlock-docs-") as folder:
            walked = walk(text, Path(folder).resolve())
        page.write_text(walked.fresh, encoding="utf-8")
        wrong = [problem for problem in walked.problems if "\nexit code " in problem or "ended with" in problem]
        failed += len(wrong)
        state = "rewritten" if walked.fresh != text else "unchanged"
        print(f"{page.relative_to(ROOT)}: {state}, {walked.executed} blocks executed, {len(walked.not_run)} not run")
        for problem in wrong:
            print(problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
