"""The inbox file: what it means, and what is said about mistakes, each with its place."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from consumers.inbox.key_patterns import SHAPES
from consumers.inbox.notifications import EventNotification, ObjectNotification, PlainNotification, read_notification
from consumers.inbox.rules import Mapped, ObjectRole, Unmappable
from consumers.inbox.rules_file import OF_OBJECTS, check_rules, rules_from, rules_in, rules_of
from tests.support.worlds.inbox import an_object, message, notification
from worker.config.load import load_directory
from worker.core.collect.collection import Until
from worker.core.errors import ConfigError
from worker.core.model.values import Json

EXAMPLES = Path(__file__).parents[4] / "examples"
HEAD = "  - {name: r, pipeline: p, sensor: s, "
ORDERS = """\
rules:
  - name: orders
    object: {bucket: b, key: "orders/${date}/${part}.csv", unless: [orders/2020]}
    pipeline: ${part}-daily
    sensor: export
    period: ${date}
"""


def problems(text: str) -> list[str]:
    rules, found = check_rules(text, "inbox.yaml")
    assert (rules is None) == bool(found)
    return [str(problem) for problem in found]


def mapped(text: str, key: str) -> Mapped | None:
    [rule] = rules_of(text)
    [news] = read_notification(message(notification(an_object(key), bucket="b")))
    return rule.map(news)


# --- what it means ----------------------------------------------------------------------------------------------------


def test_pipeline_sensor_and_period_come_from_the_key() -> None:
    found = mapped(ORDERS, "orders/20260303/eu.csv")

    assert found is not None
    assert (found.report.pipeline, found.report.key, str(found.period)) == (
        "eu-daily",
        "export#2026-03-03",
        "2026-03-03",
    )


def test_without_fields_a_sensor_says_all_that_is_known_of_an_object() -> None:
    found = mapped(ORDERS, "orders/20260303/eu.csv")

    assert found is not None
    assert found.report.data == {
        "bucket": "b",
        "key": "orders/20260303/eu.csv",
        "event": "created",
        "etag": "e1",
        "size": 12,
        "at": "2026-03-03T12:00:00Z",
    }


@pytest.mark.parametrize("key", ["orders/20200101/eu.csv", "orders/today/eu.csv", "other/20260303/eu.csv"])
def test_other_keys_are_not_meant(key: str) -> None:
    assert mapped(ORDERS, key) is None


@pytest.mark.parametrize(
    ("key", "problem"), [("orders/20261399/eu.csv", "no period"), ("orders/20260303/é.csv", "no name of a pipeline")]
)
def test_a_key_that_tells_no_date_or_no_pipeline_cannot_be_used(key: str, problem: str) -> None:
    with pytest.raises(Unmappable, match=problem):
        mapped(ORDERS, key)


def data_of(fields: str, body: dict[str, Json]) -> object:
    [rule] = rules_of(f"rules:\n{HEAD}message: {{a: [1]}}, fields: {fields}}}\n")
    found = rule.map(PlainNotification({"a": 1, **body}))
    return None if found is None else found.report.data


def test_a_field_that_is_one_variable_keeps_its_kind_and_is_left_out_if_there_is_nothing() -> None:
    fields = '{rows: "${stats.rows}", ok: "${ok}", text: "rows ${stats.rows}", gone: "${gone}", fixed: 7}'

    data = data_of(fields, {"stats": {"rows": 5}, "ok": True})

    assert data == {"rows": 5, "ok": True, "text": "rows 5", "fixed": 7}


def test_a_longer_text_without_what_it_is_made_of_cannot_be_used() -> None:
    with pytest.raises(Unmappable, match="needs `gone`"):
        data_of('{text: "rows ${gone}"}', {})


def test_a_value_of_the_message_is_never_filled_in_again() -> None:
    assert data_of('{text: "x ${b}"}', {"b": "${a}"}) == {"text": "x ${a}"}


def test_a_rule_for_events_hears_no_messages_and_no_objects() -> None:
    [rule] = rules_of(f"rules:\n{HEAD}event: {{source: [acme]}}}}\n")
    [news] = read_notification(message(notification(an_object())))

    assert isinstance(news, ObjectNotification)
    assert rule.map(news) is None
    assert rule.map(PlainNotification({"source": "acme"})) is None
    heard = rule.map(EventNotification({"source": "acme", "detail": {"rows": 1}}))
    assert heard is not None
    assert heard.report.data == {"rows": 1}


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: []", ["inbox.yaml:1:8: error: rules: is required"]),
        ("rules: [", ["inbox.yaml:"]),
        (f"rules:\n{HEAD}objct: {{}}}}", ["did you mean `object`?"]),
        (f"rules:\n{HEAD}}}", ["inbox.yaml:2:5: error: rules[0]: must have exactly one of object, event and message"]),
        (f"rules:\n{HEAD}object: {{bucket: b}}, event: {{a: [b]}}}}", ["found object and event"]),
        (f"rules:\n{HEAD}object: {{key: a}}}}", ["rules[0].object.bucket: is required"]),
        (f'rules:\n{HEAD}object: {{bucket: b, key: "**/**"}}}}', ["rules[0].object.key: `**` stands in it twice"]),
        (f'rules:\n{HEAD}object: {{bucket: b, key: "${{size}}"}}}}', ["`${size}` is a name that every object has"]),
        (f"rules:\n{HEAD}object: {{bucket: b, deletes: yes}}}}", ["must be one of ignore, report"]),
        (f"rules:\n{HEAD}event: {{source: acme}}}}", ["rules[0].event.source: must be a list"]),
        (f"rules:\n{HEAD}event: {{source: [aws.s3]}}}}", ["use `object` instead"]),
        (f'rules:\n{HEAD}event: {{a: [b]}}, period: "${{detial.day}}"}}', ["did you mean `detail"]),
        (f'rules:\n{HEAD}object: {{bucket: b}}, period: "${{date}}"}}', ["`${date}` stands for nothing here"]),
        (f'rules:\n{HEAD}object: {{bucket: b}}, period: "${{at"}}', ["is never closed"]),
        (f"rules:\n{HEAD}object: {{bucket: b}}, writes: [b/x]}}", ["rules[0].writes[0]: must be like s3://"]),
        ("rules:\n  - {object: {bucket: b}}", ["name: is required", "pipeline: is required", "sensor: is required"]),
        (
            f"rules:\n{HEAD}object: {{bucket: b}}}}\n{HEAD}object: {{bucket: c}}}}",
            ["inbox.yaml:3:12: error: rules[1].name"],
        ),
    ],
)
def test_each_mistake_is_told_with_its_place_and_what_was_meant(text: str, said: list[str]) -> None:
    found = problems(text)

    assert len(found) == len(said)
    for problem, part in zip(found, said, strict=True):
        assert part in problem


def test_wrong_rules_keep_a_worker_from_starting_and_say_everything() -> None:
    with pytest.raises(ConfigError, match=r"(?s)rules\[0\]\.sensor.*rules\[0\]: must have exactly one"):
        rules_of("rules: [{name: a, pipeline: p}]")


def test_the_settings_hold_the_rules_or_name_their_file(tmp_path: Path) -> None:
    file = tmp_path / "inbox.yaml"
    file.write_text(ORDERS)

    assert [rule.name for rule in rules_from(str(file))] == [rule.name for rule in rules_from(ORDERS)] == ["orders"]
    with pytest.raises(ConfigError, match="cannot be read"):
        rules_from(str(tmp_path / "other.yaml"))


def test_no_name_of_an_object_is_that_of_a_date() -> None:
    assert not set(SHAPES) & set(OF_OBJECTS)


# --- loops ------------------------------------------------------------------------------------------------------------


def rule(name: str, source: str, pipeline: str, writes: str = "") -> str:
    return f"  - {{name: {name}, {source}, pipeline: {pipeline}, sensor: s, writes: [{writes}]}}\n"


@pytest.mark.parametrize(
    ("rules", "loop"),
    [
        (rule("a", "object: {bucket: b}", "p", "s3://b/out/"), "`p` writes to s3://b/out/, which `a` matches"),
        (rule("a", "object: {bucket: b, key: 'in/**'}", "p", "s3://b/"), "which `a` matches"),
        (rule("a", "object: {bucket: b, key: 'in/${date}/*'}", "p", "s3://b/in/20"), "which `a` matches"),
        (rule("a", "object: {bucket: b, unless: [out/x/]}", "p", "s3://b/out/"), "which `a` matches"),
        (
            rule("a", "object: {bucket: b}", "p", "s3://c/") + rule("z", "object: {bucket: c}", "q", "s3://b/"),
            "`p` writes to s3://c/, which `z` matches, then `q` writes to s3://b/, which `a` matches",
        ),
        (
            rule("a", "object: {bucket: b}", "p") + rule("z", "object: {bucket: c}", "p", "s3://b/x"),
            "`p` writes to s3://b/x, which `a` matches",
        ),
        (rule("a", "event: {source: [interlock]}", "p"), "has events that `a` matches"),
    ],
)
def test_a_pipeline_that_would_start_itself_is_refused(rules: str, loop: str) -> None:
    [problem] = problems(f"rules:\n{rules}")

    assert "this is a loop" in problem
    assert loop in problem
    assert "`unless`" in problem


@pytest.mark.parametrize(
    "rules",
    [
        rule("a", "object: {bucket: b, key: 'in/**'}", "p", "s3://b/out/"),
        rule("a", "object: {bucket: b, unless: [out/]}", "p", "s3://b/out/daily/"),
        rule("a", "object: {bucket: b, key: 'in/*'}", "p", "s3://b/in/x/"),
        rule("a", "object: {bucket: b}", "p", "s3://c/") + rule("z", "object: {bucket: c}", "q", "s3://d/"),
        rule("a", "event: {source: [interlock], detail: {pipelineId: [q]}}", "p"),
    ],
)
def test_what_leads_nowhere_is_no_loop(rules: str) -> None:
    assert problems(f"rules:\n{rules}") == []


# --- collect ----------------------------------------------------------------------------------------------------------

COLLECT = """\
rules:
  - name: parts
    object: {bucket: b, key: "in/${date}/part-${part}.csv"}
    pipeline: p
    sensor: parts
    period: ${date}
    collect: {COLLECT}
"""


def collecting(collect: str) -> str:
    return COLLECT.replace("{COLLECT}", collect)


def test_a_rule_that_collects_names_the_part_the_marker_and_the_manifest() -> None:
    text = collecting('{until: {object: "in/${date}/_SUCCESS", manifest: "in/${date}/m.json"}, latest: 6h}')
    [rule] = rules_of(text)
    found = {key: mapped(text, f"in/2026-03-03/{key}") for key in ("part-1.csv", "_SUCCESS", "m.json", "other")}

    assert {key: each and each.role for key, each in found.items()} == {
        "part-1.csv": ObjectRole.PART,
        "_SUCCESS": ObjectRole.MARKER,
        "m.json": ObjectRole.MANIFEST,
        "other": None,
    }
    assert {each.report.key for each in found.values() if each} == {"parts#2026-03-03"}
    assert rule.collect is not None
    assert rule.collect.until == Until(has_marker=True, has_manifest=True, latest=timedelta(hours=6))
    assert rule.reads_objects


@pytest.mark.parametrize(
    ("collect", "problem"),
    [
        ("{}", "needs at least one of object, manifest, count and quiet"),
        ("{until: {count: 0}}", "rules[0].collect.until.count"),
        ("{until: {count: 100001}}", "rules[0].collect.until.count"),
        ("{until: {quiet: soon}}", "must be a duration between 0s and 720h"),
        ("{until: {count: 1}, latest: 31d}", "rules[0].collect.latest: must be a duration between 0s and 720h"),
        ('{until: {object: "in/_SUCCESS"}}', "has no `${date}`, which `period` uses"),
        ('{until: {object: "in/${date}/**/**"}}', "`**` stands in it twice"),
    ],
)
def test_mistakes_in_collect_are_reported_at_their_place(collect: str, problem: str) -> None:
    [found] = problems(collecting(collect))

    assert problem in found


def test_what_collect_cannot_be_combined_with_is_said() -> None:
    base = "rules:\n  - {name: a, pipeline: p, sensor: s, collect: {until: {count: 1}}, "

    assert "the rule must have `object`" in problems(base + "message: {kind: [x]}, period: x}")[0]
    assert "is required with `collect`" in problems(base + "object: {bucket: b}}")[0]
    assert "has no effect with `collect`" in problems(base + "object: {bucket: b}, period: x, fields: {a: 1}}")[0]


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        ("done/", "must be like s3://bucket/prefix/"),
        ("s3://b/done", "must end with a slash"),
        ("s3://b/in/2026-03-03/", "is a place where the rule finds objects"),
    ],
)
def test_a_wrong_archive_is_said(archive: str, problem: str) -> None:
    assert problem in problems(collecting("{until: {count: 1}}") + f"    archive: {archive}\n")[0]


def test_an_archive_needs_the_objects_of_a_run_and_is_a_place_that_the_pipeline_writes() -> None:
    base = "rules:\n  - {name: a, pipeline: p, sensor: s, period: x, archive: s3://b/done/, "
    other = '  - {name: z, pipeline: p, sensor: t, object: {bucket: b, key: "done/**"}}\n'
    collect = "collect: {until: {count: 1}}"

    assert "needs `collect`" in problems(base + "object: {bucket: b, key: in/*}}")[0]
    assert (
        "would report its own work"
        in problems(base + f"{collect}, object: {{bucket: b, key: in/*, deletes: report}}}}")[0]
    )
    assert problems(base + f"{collect}, object: {{bucket: b, key: in/*}}}}") == []
    assert "this is a loop" in problems(base + f"{collect}, object: {{bucket: b, key: in/*}}}}\n{other}")[0]


def test_a_pipeline_that_writes_its_own_marker_is_a_loop() -> None:
    text = collecting('{until: {object: "done/${date}/_SUCCESS"}}')

    [found] = problems(text + "    writes: [s3://b/done/]\n")

    assert "this is a loop" in found
    assert problems(text + "    writes: [s3://b/curated/]\n") == []


# --- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [EXAMPLES / "inbox/inbox.yaml", EXAMPLES / "terraform/full/inbox.yaml"], ids=str)
def test_the_examples_load_and_speak_of_pipelines_that_are_there(path: Path) -> None:
    full = path.parent / "pipelines"
    beside, calendars = (full, path.parent / "calendars") if full.exists() else (EXAMPLES, EXAMPLES / "calendars")
    known = {pipeline.id for pipeline in load_directory([beside], calendars_dir=calendars).pipelines}

    assert {rule.pipeline for rule in rules_in(path)} <= known


def test_the_example_of_the_page_loads() -> None:
    page = (EXAMPLES.parent / "docs/inbox.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert [rule.name for each in examples for rule in rules_of(each)] == ["orders-export", "orders-parts"]
