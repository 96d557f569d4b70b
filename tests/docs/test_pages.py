"""Every command of the tutorial and the how-to pages does what its page shows.

`python -m tests.docs.refresh` brings the outputs on the pages up to date.
"""

import re
from pathlib import Path

import pytest

from tests.docs.pagefile import NAMES, ROOT, Command, blocks, commands, pages
from tests.docs.terminal import displayed
from tests.docs.walkthrough import Ports, comparable, walk

PAGES = pages()
USER_PAGES = [*PAGES, *sorted((ROOT / "docs" / "concepts").glob("*.md"))]
# How many blocks of a page are shown without being executed. Each of them says why in the page's source.
NOT_RUN = {
    "get-started/install.md": 8,
    "get-started/quick-start.md": 1,
    "get-started/tutorial.md": 1,
    "how-to/alert-targets.md": 2,
    "how-to/alerts-to-slack.md": 2,
    "how-to/bucket-to-graph.md": 2,
    "how-to/changed-records.md": 1,
    "how-to/archive.md": 5,
    "how-to/console.md": 2,
    "how-to/glue-with-iam.md": 2,
    "how-to/http-api.md": 1,
    "how-to/migrate.md": 1,
    "how-to/s3-files.md": 2,
    "how-to/test-rules-in-ci.md": 3,
    "how-to/wait-for-an-api.md": 3,
    "how-to/web-access.md": 3,
}


@pytest.mark.timeout(300)  # a second for each command, and many times that on a busy machine
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_reader_who_types_what_the_page_says_sees_what_it_shows(page: Path, tmp_path: Path) -> None:
    walked = walk(page.read_text(encoding="utf-8"), tmp_path.resolve())

    assert not walked.problems, "\n\n".join(
        [*walked.problems, "python -m tests.docs.refresh brings outputs up to date"]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_is_skipped_in_silence(page: Path) -> None:
    found = list(blocks(page.read_text(encoding="utf-8")))

    assert [block.body for block in found if not block.is_treated] == []
    assert {name for block in found for name, _ in block.markers} <= NAMES
    not_run = [block for block in found if block.marker("not run") is not None]
    assert all(block.marker("not run") for block in not_run)
    assert len(not_run) == NOT_RUN.get(str(page.relative_to(ROOT / "docs")), 0)


def test_every_page_that_is_counted_exists() -> None:
    assert set(NOT_RUN) <= {str(page.relative_to(ROOT / "docs")) for page in PAGES}


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.stem)
def test_a_page_for_users_names_no_module_test_or_decision_record(page: Path) -> None:
    internal = re.compile(r"\b(?:worker|consumers|scheduler|tests)/\w+|\btest_\w+|\bADR\b|docs/adr")

    assert internal.findall(page.read_text(encoding="utf-8")) == []


def test_a_port_of_a_page_is_one_that_is_free_here_and_outputs_show_that_of_the_page() -> None:
    ports = Ports()

    first, again = ports.used("env WEB=127.0.0.1:8047 run"), ports.used("API=http://127.0.0.1:8047/api/v1")

    port = first.removeprefix("env WEB=127.0.0.1:").removesuffix(" run")
    assert port != "8047"
    assert again == f"API=http://127.0.0.1:{port}/api/v1"
    assert ports.shown(f"served on http://127.0.0.1:{port}/") == "served on http://127.0.0.1:8047/"


def test_outputs_that_differ_in_times_and_ids_alone_are_the_same() -> None:
    shown = "orders/2026-11-17  waiting  3s   since 2026-11-17 16:23 UTC, version 2909f9050703"
    came = "orders/2027-01-02  waiting  1m 12s since 2027-01-02 09:00 UTC, version 1b103b05c372\n"

    assert comparable(shown) == comparable(came)
    assert comparable(shown) != comparable(came.replace("waiting", "running"))


def test_outputs_that_differ_in_how_long_a_request_took_are_the_same() -> None:
    assert comparable("result after 0.1 s") == comparable("result after 12.6 s")
    assert comparable("result after 0.1 s") != comparable("no result after 0.1 s")


def test_a_command_goes_on_behind_a_backslash_and_its_output_follows() -> None:
    block = "$ one \\\n    --more\n$ two\n2\n\n3\n"

    assert commands(block) == [Command("one \\\n    --more", ""), Command("two", "2\n\n3")]


def test_a_progress_bar_that_was_erased_is_not_shown() -> None:
    printed = "\x1b[1mreading\x1b[0m 0/1\r\n\r\x1b[2K\x1b[1A\x1b[2K1 file checked\r\n"

    assert displayed(printed) == "1 file checked\n"


def test_a_wrong_output_and_a_wrong_exit_code_are_reported_and_refreshed(tmp_path: Path) -> None:
    page = (
        "Say it:\n\n```console\n$ echo one\ntwo\n$ (exit 3)\n```\n\n"
        "<!-- not run: a reason -->\n```console\n$ touch not-run\n```\n"
    )

    walked = walk(page, tmp_path)

    wrong_output, wrong_code = walked.problems
    assert "two" in wrong_output
    assert "exit code 3, expected 0" in wrong_code
    assert walked.fresh == page.replace("two", "one")
    assert walked.not_run == ["a reason"]
