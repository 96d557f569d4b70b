"""Archetypes: merged by simple rules, with values that stay data, and mistakes that are found in both files."""

import json
from pathlib import Path

import pytest

from worker.archetypes.annotate import annotated
from worker.archetypes.archetype import Archetype
from worker.archetypes.parameters import ITEMS_MAX
from worker.config.documents import read_document
from worker.config.load import Loaded, load_archetype_text, load_directory, load_text
from worker.config.render import to_json
from worker.core.model.checks import Operator
from worker.core.model.pipeline import ArchetypeRef, Pipeline
from worker.core.model.rules import Rule, leaves

INGEST = """
archetype:
  id: ingest
  parameters: {minRows: {type: number, default: 1000}, feed: {type: text}, days: {type: list, default: [mon]}}
pipeline: {owner: data-team}
schedule: {trigger: {key: "${feed}", check: equals, field: status, value: complete}, evaluation: {window: 2h}}
validation: {rules: [{key: "${feed}", check: gte, field: rows, value: "${minRows}"}]}
job: {type: glue, config: {jobName: "load-${feed}", arguments: {--day: "${DATE}"}}, maxRetries: 2}
"""
ORDERS = """pipeline: {id: orders}
extends:
  archetype: ingest
  with: {feed: orders-export}
"""


def load(file: str, *archetypes: str) -> Loaded:
    found: dict[str, Archetype] = {}
    for text in archetypes or (INGEST,):
        archetype, problems = load_archetype_text(text, "archetypes/ingest.yaml")
        assert archetype is not None, problems.found
        assert not problems.has_errors, problems.found
        found[archetype.id] = archetype
    return load_text(file, file="orders.yaml", archetypes=found)


def sound(file: str, *archetypes: str) -> Pipeline:
    loaded = load(file, *archetypes)
    assert loaded.pipeline is not None, loaded.errors
    return loaded.pipeline


def messages(loaded: Loaded) -> list[str]:
    return [str(problem) for problem in loaded.errors]


def rules(pipeline: Pipeline) -> list[Rule]:
    return list(leaves(pipeline.rules))


def test_a_pipeline_takes_over_what_it_does_not_say_itself() -> None:
    pipeline = sound(ORDERS)

    assert pipeline.owner == "data-team"
    assert rules(pipeline) == [Rule(key="orders-export", check=Operator.GTE, field="rows", value=1000)]
    assert pipeline.job is not None
    assert (pipeline.job.config["jobName"], pipeline.job.max_retries) == ("load-orders-export", 2)
    assert pipeline.job.config["arguments"] == {"--day": "${DATE}"}


def test_mappings_merge_rules_append_and_the_file_wins() -> None:
    pipeline = sound(
        ORDERS.replace("{id: orders}", "{id: orders, owner: sales}")
        + "schedule: {evaluation: {interval: 1m}}\n"
        + "validation: {rules: [{key: audit, check: exists}]}\n"
        + "job: {config: {job_name: other}}\n"
    )

    assert pipeline.owner == "sales"
    assert [rule.key for rule in rules(pipeline)] == ["orders-export", "audit"]
    [schedule] = pipeline.schedules
    assert (schedule.evaluation.window.total_seconds(), schedule.evaluation.interval.total_seconds()) == (7200, 60)
    assert pipeline.job is not None
    assert pipeline.job.config["jobName"] == "other"


def test_replace_takes_the_place_of_a_part_and_nothing_takes_it_out() -> None:
    replaced = sound(
        ORDERS + "  replace: [validation.rules]\n" + "validation: {rules: [{key: audit, check: exists}]}\n"
    )
    without = sound(ORDERS + "validation:\n")

    assert [rule.key for rule in rules(replaced)] == ["audit"]
    assert rules(without) == []


def test_the_reference_and_the_resolved_file_need_no_archetype() -> None:
    pipeline = sound(ORDERS)
    archetype, _ = load_archetype_text(INGEST, "x")
    assert archetype is not None

    stored = load_text(to_json(pipeline), lenient=True).pipeline

    assert stored == pipeline
    assert stored is not None
    assert stored.archetype == ArchetypeRef("ingest", archetype.hash)
    commented, _ = load_archetype_text("# a comment\n" + INGEST, "y")
    assert commented is not None
    assert commented.hash == archetype.hash


def test_the_rendered_text_says_where_each_line_is_written_and_loads_as_the_same_pipeline() -> None:
    text = ORDERS + "validation: {rules: [{key: 'on', check: equals, field: f, value: '#1: x'}]}\n"
    loaded = load(text)
    document, _ = read_document(text, "orders.yaml")
    assert document is not None
    assert loaded.resolved is not None

    shown = annotated(loaded.resolved.value, document, "orders.yaml", loaded.resolved)

    assert load_text(shown).pipeline == loaded.pipeline
    lines = {line.split("#")[0].strip(): line.rsplit("# ", 1)[1] for line in shown.splitlines()}
    assert lines["id: orders"] == "orders.yaml:1"
    assert lines["value: 1000"] == "archetype ingest:7 with minRows"
    assert lines["validation:"] == "orders.yaml:5 and archetype ingest"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{}", "orders.yaml:4:9: error: extends.with: archetype `ingest` needs a value for `feed`; add `feed:` (text)"),
        (
            "{feed: 5}",
            "orders.yaml:4:16: error: extends.with.feed: must be text; archetype `ingest` declares it as text",
        ),
        (
            "{feed: a, minRows: many}",
            "orders.yaml:4:28: error: extends.with.minRows: must be a number; archetype `ingest` declares it as number",
        ),
        (
            "{feed: a, minrows: 5}",
            (
                "orders.yaml:4:28: error: extends.with.minrows: `minrows` is no parameter of archetype `ingest`; "
                "accepted: minRows, feed, days"
            ),
        ),
        ("[feed]", "orders.yaml:4:9: error: extends.with: must be a mapping of parameters to values"),
    ],
)
def test_a_wrong_parameter_is_an_error_at_its_line(given: str, expected: str) -> None:
    assert messages(load(ORDERS.replace("{feed: orders-export}", given))) == [expected]


def test_a_mistake_inside_an_archetype_names_both_places() -> None:
    broken = INGEST.replace("check: gte", "check: gtee").replace("window: 2h", 'window: "${feed}"')

    found = messages(load(ORDERS, broken))

    assert [message.split(": must")[0].split("; write")[0] for message in found] == [
        "orders.yaml:2:1: error: validation.rules[0].check",
        (
            'orders.yaml:4:16: error: schedule.evaluation.window: the text "orders-export" is not a duration '
            "(in archetypes/ingest.yaml:6:107)"
        ),
    ]
    assert found[0].endswith('found the text "gtee" (in archetypes/ingest.yaml:7:46); did you mean `gte`?')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: {archetype: other}\n", "extends: an archetype cannot extend another one"),
        ("pipeline: {id: x}\n", "pipeline.id: an archetype has no pipeline id"),
        ('job: {type: "${kind}"}\n', "job.type: `${kind}` is not a parameter"),
        ("jobs: {}\n", "jobs: `jobs` is not a section of an archetype"),
        ('sla: {deadline: "at ${all}"}\n', "sla.deadline: `all` is a list, and a list cannot be part of a text"),
    ],
)
def test_an_archetype_has_its_own_limits(text: str, expected: str) -> None:
    head = "archetype: {id: a, parameters: {all: {type: list, default: []}}}\n"

    _, problems = load_archetype_text(head + text, "a.yaml")

    assert [str(problem).split(": error: ")[1].split("; ")[0] for problem in problems.found] == [expected]


@pytest.mark.parametrize(
    "parameters",
    ["{Big: {type: text}}", "{a: text}", "{a: {type: integer}}", "{a: {type: number, default: x}}", "[a]", "{a: {}}"],
)
def test_a_wrong_declaration_is_refused(parameters: str) -> None:
    _, problems = load_archetype_text(f"archetype: {{id: a, parameters: {parameters}}}\n", "a.yaml")

    assert problems.has_errors


@pytest.mark.parametrize(
    "value",
    ["a: b", "{key: x}", "[1, 2]", "${minRows}", "*anchor", "# not a comment", "x\n  - y", "'", '"', "<<", "$${feed}"],
)
def test_a_value_is_data_and_is_never_parsed_or_filled_in_again(value: str) -> None:
    pipeline = sound(ORDERS.replace("orders-export", json.dumps(value)), INGEST.replace("load-${feed}", "load"))

    assert rules(pipeline)[0].key == value
    stored = load_text(to_json(pipeline), lenient=True).pipeline
    assert stored == pipeline


def test_an_escape_keeps_the_text_of_a_reference() -> None:
    archetype = INGEST.replace('"load-${feed}"', '"$${feed}"')

    job = sound(ORDERS, archetype).job
    assert job is not None
    assert job.config["jobName"] == "$${feed}"


@pytest.mark.parametrize("where", ["text", "list", "repeated"])
def test_a_value_that_would_make_the_file_huge_is_refused(where: str) -> None:
    parts = ", ".join(["{key: k, check: in, field: f, value: '${days}'}"] * 150)
    archetype = {
        "text": INGEST.replace("load-${feed}", "${feed}" * 20_000),
        "list": INGEST.replace("rules: [", f"rules: [{parts}, "),
        "repeated": INGEST,
    }[where]
    given = {
        "text": "{feed: " + "x" * 1_000 + "}",
        "list": "{feed: a, days: [" + ", ".join(["a"] * ITEMS_MAX) + "]}",
        "repeated": "{feed: " + "x" * 20_000 + "}",
    }[where]

    found = messages(load(ORDERS.replace("{feed: orders-export}", given), archetype))

    assert len(found) == 1
    assert "more than" in found[0]


def test_a_stored_row_that_still_extends_is_refused_with_the_reason() -> None:
    loaded = load_text(ORDERS, file="orders CONFIG", lenient=True)

    assert loaded.pipeline is None
    assert "no archetypes are at hand" in str(loaded.errors[0])


def test_a_folder_is_read_with_its_archetypes(tmp_path: Path) -> None:
    (tmp_path / "archetypes").mkdir()
    (tmp_path / "archetypes" / "ingest.yaml").write_text(INGEST)
    (tmp_path / "archetypes" / "again.yaml").write_text(INGEST)
    (tmp_path / "archetypes" / "bad.yaml").write_text("archetype: {id: bad}\njobs: {}\n")
    (tmp_path / "orders.yaml").write_text(ORDERS)
    (tmp_path / "other.yaml").write_text("pipeline: {id: other}\nextends: {archetype: bad}\n")
    (tmp_path / "typo.yaml").write_text("pipeline: {id: typo}\nextends: {archetype: ingets}\n")

    found = load_directory([tmp_path])

    assert [pipeline.id for pipeline in found.pipelines] == ["orders"]
    said = [(Path(problem.file).name, problem.message) for problem in found.errors]
    assert said == [
        ("bad.yaml", "`jobs` is not a section of an archetype"),
        ("ingest.yaml", "`ingest` is also the id of another archetype"),
        ("other.yaml", "archetype `bad` has errors"),
        ("typo.yaml", "there is no archetype `ingets`"),
    ]
