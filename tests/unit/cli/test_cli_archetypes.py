"""Archetypes on the command line: rendered, pushed, and a change compared across all that use them."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.builders.command_line import interlock

ARCHETYPE = """archetype: {id: ingest, parameters: {minRows: {type: number, default: 1000}, feed: {type: text}}}
schedule: {trigger: {key: "${feed}", check: equals, field: status, value: complete, deadline: "06:00"}}
validation: {rules: [{key: "${feed}", check: gte, field: rows, value: "${minRows}"}]}
job: {type: glue, config: {jobName: "load-${feed}"}}
"""
USERS = 200


def a_folder(at: Path, archetype: str = ARCHETYPE, users: int = USERS) -> Path:
    (at / "archetypes").mkdir(parents=True)
    (at / "archetypes" / "ingest.yaml").write_text(archetype)
    for number in range(users):
        more = ", minRows: 5" if number % 20 == 0 else ""
        text = f"pipeline: {{id: feed-{number:03d}}}\nextends: {{archetype: ingest, with: {{feed: f{number}{more}}}}}\n"
        (at / f"feed-{number:03d}.yaml").write_text(text)
    return at


def test_render_prints_a_complete_file_with_the_origin_of_each_line(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "pipelines", users=2)

    result = interlock("render", str(folder / "feed-001.yaml"))
    (tmp_path / "feed-001.yaml").write_text(result.stdout)

    assert result.exit_code == 0
    assert "value: 1000" in result.stdout
    assert "# archetype ingest:3 with minRows" in result.stdout
    assert interlock("validate", str(tmp_path / "feed-001.yaml")).exit_code == 0
    assert interlock("plan", "--against", str(tmp_path / "feed-001.yaml"), str(folder / "feed-001.yaml")).exit_code == 0


def test_a_file_with_a_problem_is_rendered_with_it_and_exit_code_1(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "pipelines", ARCHETYPE.replace("check: gte", "check: gtee"), users=1)

    result = interlock("render", str(folder / "feed-000.yaml"))

    assert result.exit_code == 1
    assert "check: gtee" in result.stdout
    assert "feed-000.yaml:2:1 validation.rules[0].check: " in result.stderr
    assert "ingest.yaml:3:46)" in result.stderr


def test_a_changed_archetype_is_compared_across_all_that_use_it(tmp_path: Path) -> None:
    old = a_folder(tmp_path / "old")
    new = a_folder(tmp_path / "new", ARCHETYPE.replace("1000", "2000").replace("06:00", "07:00"))

    shown = interlock("plan", "--against", str(old), str(new), "--days", "1")
    told = interlock("plan", "--against", str(old), str(new), "--days", "1", "--json")

    assert shown.exit_code == told.exit_code == 1
    assert "): 200 pipelines" in shown.stdout
    assert "190 pipelines: feed-001, feed-002," in shown.stdout
    assert "and 180 more" in shown.stdout
    assert "validation.rules[0].value: 1000 -> 2000" in shown.stdout
    assert 'schedule.trigger.deadline: "06:00" -> "07:00"' in shown.stdout
    records = [json.loads(line) for line in told.stdout.splitlines()]
    changed = [record for record in records if record["type"] == "archetypeChange"]
    assert len(changed) == USERS
    assert [len(record["changes"]) for record in changed[:2]] == [1, 2]
    assert len([record for record in records if record["type"] == "change"]) >= USERS


def test_the_store_keeps_the_resolved_file_with_the_archetypes_name_and_hash(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "pipelines", users=2)
    store = f"sqlite:///{tmp_path / 'interlock.db'}"
    assert interlock("store", "init", "--store", store).exit_code == 0

    assert interlock("pipelines", "push", str(folder), "--yes", "--store", store).exit_code == 0
    shown = interlock("pipelines", "show", "feed-001", "--json", "--store", store)

    stored = json.loads(shown.stdout)
    assert stored["pipeline"]["archetype"]["id"] == "ingest"
    assert len(stored["pipeline"]["archetype"]["hash"]) == 64
    assert stored["validation"]["rules"][0]["value"] == 1000
    assert "extends" not in stored
    again = interlock("pipelines", "push", str(folder), "--yes", "--store", store)
    assert "2 unchanged" in again.stdout


def test_both_kinds_of_file_have_a_schema_that_accepts_them(tmp_path: Path) -> None:
    pipeline = {"pipeline": {"id": "a"}, "extends": {"archetype": "ingest", "with": {"feed": "x"}}}
    archetype = {
        "archetype": {"id": "ingest", "parameters": {"minRows": {"type": "number", "default": 5}}},
        "validation": {"rules": [{"key": "a", "check": "gte", "field": "rows", "value": "${minRows}"}]},
        "job": {"type": "glue", "config": {"jobName": "x"}, "maxRetries": "${minRows}"},
    }
    for kind, right, wrong in (
        ("pipeline", pipeline, {"pipeline": {"id": "a"}}),
        ("archetype", archetype, {**archetype, "archetype": {"id": "a", "parameters": {"Big": {"type": "text"}}}}),
    ):
        validator: Any = Draft202012Validator(json.loads(interlock("schema", "--kind", kind).stdout))
        assert not list(validator.iter_errors(right))
        assert list(validator.iter_errors(wrong))
    assert interlock("schema", "--kind", "archetype", "-o", str(tmp_path / "a.json")).exit_code == 0
