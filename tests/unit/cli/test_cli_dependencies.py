"""Dependencies on the command line: what `validate` and `push` say about `after`."""

import json
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import TODAY, interlock
from tests.support.builders.pushed_files import stored_text
from tests.support.worlds.dependencies import after, root
from worker.core.model.content_hash import content_hash
from worker.core.model.keys import config_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.store.repos.marks import Marks
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

ROOT = Path(__file__).parents[3]
DAILY = "grain: day"


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    assert interlock("store", "init").exit_code == 0
    Path("files").mkdir(exist_ok=True)


def write(*texts: tuple[str, str]) -> None:
    for name, text in texts:
        Path("files", f"{name}.yaml").write_text(text)


def test_validate_reports_a_cycle_with_its_path_file_and_line() -> None:
    write(("a", after("a", ["c"])), ("b", after("b", ["a"])), ("c", after("c", ["b"])))

    result = interlock("validate", "files")

    assert result.exit_code == 1
    assert "files/a.yaml:6:18 schedule.after[0].pipeline: a cycle: a after c after b after a" in result.stdout


def test_validate_of_a_folder_suggests_the_pipeline_that_was_meant() -> None:
    write(("orders", root("orders")), ("gold", after("gold", ["order"])))

    result = interlock("validate", "files")

    assert "there is no pipeline `order`" in result.stdout
    assert "did you mean `orders`?" in result.stdout


def test_push_finds_upstreams_in_the_store_and_rejects_those_that_are_nowhere() -> None:
    write(("a", root("a")))
    interlock("pipelines", "push", "files", "--yes")
    Path("files", "a.yaml").unlink()
    write(("b", after("b", ["a"])), ("x", after("x", ["nowhere"])))

    refused = interlock("pipelines", "push", "files", "--yes")
    alone = interlock("pipelines", "push", "files/b.yaml", "--yes")
    allowed = interlock("pipelines", "push", "files", "--yes", "--allow-missing")

    assert refused.exit_code == 1
    assert "there is no pipeline `nowhere`" in refused.stdout
    assert alone.exit_code == 0
    assert allowed.exit_code == 0


def test_push_rejects_a_cycle_through_the_store() -> None:
    write(("a", root("a")), ("b", after("b", ["a"])))
    interlock("pipelines", "push", "files", "--yes")
    before = stored_text("a")
    write(("a", after("a", ["b"])))

    refused = interlock("pipelines", "push", "files/a.yaml", "--yes")

    assert refused.exit_code == 1
    assert "a cycle: a after b after a" in refused.stdout
    assert stored_text("a") == before


def test_lineage_shows_the_graph_as_text_mermaid_dot_and_json() -> None:
    write(
        ("a", root("a", "grain: hour")), ("b", after("b", ["a"], "grain: day")), ("c", after("c", ["b"], "grain: day"))
    )
    interlock("pipelines", "push", "files", "--yes")

    text = interlock("lineage")
    mermaid = interlock("lineage", "b", "--up", "1", "--down", "0", "--format", "mermaid")
    dot = interlock("lineage", "b", "--down", "0", "--format", "dot")
    record = interlock("lineage", "c", "--format", "json", "--period", "2026-03-03")
    short = interlock("lineage", "c", "--json", "--period", "2026-03-03")
    both = interlock("lineage", "c", "--json", "--format", "dot")

    assert text.stdout.splitlines() == ["a", "  b  after a (all)", "    c  after b"]
    assert mermaid.stdout.splitlines() == ["flowchart LR", '  p0["a"]', '  p1["b"]', "  p0 -->|all| p1"]
    assert '  p0 -> p1 [label="all"];' in dot.stdout
    found = json.loads(record.stdout)
    assert [len(node["runs"]) for node in found["nodes"]] == [24, 1, 1]
    assert found["nodes"][2]["runs"][0]["status"] == "not started"
    assert json.loads(short.stdout) == found
    assert both.exit_code == 2
    assert "--json and --format dot contradict each other" in both.stderr


def test_the_docs_show_the_lineage_of_the_demo() -> None:
    interlock("pipelines", "push", str(ROOT / "worker/cli/demo/files/pipelines"), "--yes")

    text = interlock("lineage").stdout
    mermaid = interlock("lineage", "gold-orders", "--format", "mermaid").stdout

    page = (ROOT / "docs/concepts/dependencies.md").read_text()
    assert text.count("after") == 2
    assert f"```text\n{text}```" in page
    assert f"```text\n{mermaid}```" in page


def test_lineage_of_an_unknown_pipeline_is_an_error() -> None:
    assert interlock("lineage", "nothing").exit_code == 2
    assert interlock("lineage").stdout == "No pipeline runs after another.\n"


def test_a_followed_replay_shows_the_runs_below_in_the_order_in_which_they_run() -> None:
    write(
        ("a", root("a", "grain: hour")), ("b", after("b", ["a"], "grain: day")), ("c", after("c", ["b"], "grain: day"))
    )
    interlock("pipelines", "push", "files", "--yes")

    shown = interlock("replay", "a", "2026-03-03T00", "2026-03-03T05", "--downstream", "--dry-run")
    alone = interlock("replay", "a", "2026-03-03T00", "2026-03-03T05", "--dry-run")

    assert "2 runs below follow, in this order:\n  b  2026-03-03\n  c  2026-03-03\n" in shown.stdout
    assert "below" not in alone.stdout


def test_a_cascade_marker_is_written_with_its_author_and_reason() -> None:
    write(("a", root("a")))
    interlock("pipelines", "push", "files", "--yes")

    rehearsed = interlock("cascade", "a", "2026-03-03", "--reason", "the export is done", "--dry-run")
    result = interlock("cascade", "a", "2026-03-03", "--reason", "the export is done", "--as", "mia")
    shown = interlock("cascade", "a", "2026-03-04", "--reason", "x", "--json")
    refused = interlock("cascade", "a", "2036-03-03", "--reason", "a mistyped year")
    events = interlock("events", "--since", "400d", "--json")

    assert "Nothing was requested (dry run)" in rehearsed.stdout
    assert result.exit_code == 0
    assert result.stdout.startswith('Cascade requested for a/2026-03-03 ("the export is done");')
    assert json.loads(shown.stdout)["asked"] is True
    assert (refused.exit_code, refused.stdout.startswith("Cascade rejected:")) == (1, True)
    acted = [json.loads(line) for line in events.stdout.splitlines() if '"cascade"' in line]
    assert [event["detail"]["requestedBy"] for event in acted if event["period"] == "2026-03-03"] == ["mia"]
    assert interlock("cascade", "nothing", "2026-03-03", "--reason", "x").exit_code == 2


def test_show_says_that_a_version_was_rejected_for_a_cycle() -> None:
    write(("a", root("a")), ("b", after("b", ["a"])))
    interlock("pipelines", "push", "files", "--yes")
    sound = interlock("pipelines", "show", "b")

    async def reject(tables: Tables) -> None:
        stored = await Pipelines(tables).get(PipelineId("b"))
        assert stored is not None
        cycle = "a cycle: b after a after b"
        refused: dict[str, Json] = {"good": None, "refused": content_hash(stored.text or ""), "cycle": cycle}
        await Marks(tables).put_once(PipelineId("b"), config_mark_sk(), refused, TODAY)

    in_store(reject)
    rejected = interlock("pipelines", "show", "b")

    assert (sound.exit_code, rejected.exit_code) == (0, 1)
    assert rejected.stdout == sound.stdout
    assert "this version was rejected: a cycle: b after a after b; none is in force" in rejected.stderr
    assert "Blocked by config: the deployed configuration is invalid: a cycle: b after a after b" in (
        interlock("explain", "b", "2027-03-22").stdout
    )
