"""Any text loads or gives located errors; whatever loads is written back as the same pipeline."""

import json
from datetime import date
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.config.load import Loaded, load_text
from worker.config.render import to_json, to_yaml
from worker.config.schema import PipelineFile, file_schema
from worker.core.model.templates import render
from worker.yaml.document import BadYaml
from worker.yaml.parser import read_yaml

TODAY = date(2026, 3, 1)
SCHEMA = file_schema(PipelineFile)
KEYS = sorted({key for body in (SCHEMA, *SCHEMA["$defs"].values()) for key in body.get("properties", {})})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["1h", "08:00", ":30", "0 6 * * *", "2026-03-31", "UTC", "glue", "exists", "gt", "ALL", "${DATE}", "first"]
    ),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=25,
)


def is_located(loaded: Loaded) -> bool:
    return all(problem.line >= 1 and problem.column >= 1 and problem.message for problem in loaded.problems)


def check(text: str) -> None:
    for lenient in (False, True):
        loaded = load_text(text, lenient=lenient, today=TODAY)
        assert is_located(loaded)
        assert (loaded.pipeline is None) == bool(loaded.errors)


@given(st.one_of(st.text(), st.text(alphabet="{}[]:-,&*!|>'\"%@`#?~ \n\tab0.<", max_size=60)))
def test_any_text_loads_or_gives_located_errors(text: str) -> None:
    check(text)


@settings(max_examples=150)
@given(trees)
def test_any_tree_loads_or_gives_located_errors(tree: object) -> None:
    check(json.dumps(tree))


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), trees, max_size=6))
def test_any_section_loads_or_gives_located_errors(sections: dict[str, Any]) -> None:
    check(yaml.safe_dump({"pipeline": {"id": "p"}, **sections}, allow_unicode=True))


@given(trees)
def test_a_tree_written_as_json_is_read_as_it_was(tree: object) -> None:
    try:
        document = read_yaml(json.dumps(tree))
    except BadYaml:
        return
    if not document.faults:
        assert document.value == tree


# --- files that load --------------------------------------------------------------------------------------------------

durations = st.sampled_from(["1s", "90s", "5m", "1h", "1h30m", "1.5h", "24h", "1ms"])
dates = st.dates().map(str)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: "${" not in text
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
numbers = st.one_of(st.integers(-1000, 1000), st.floats(-1e9, 1e9), st.integers(0, 99).map(str))


def a_mapping(
    required: dict[str, st.SearchStrategy[Any]], *, optional: dict[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional or {})


def a_rule(check: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return a_mapping(
        {
            "key": texts,
            "check": st.just(check),
            "field": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4),
            "value": values,
        },
        optional={"maxFutureSkew": durations},
    )


rules = st.one_of(
    a_mapping({"key": texts, "check": st.just("exists")}),
    a_mapping({"key": texts, "check": st.just("missing")}, optional={"field": texts}),
    a_rule("equals", json_values),
    a_rule("gte", numbers),
    a_rule("in", st.lists(json_values, min_size=1, max_size=3)),
    a_rule("age_lt", durations),
    a_rule("matches", st.sampled_from(["a+", "[a-z]*x", "(a|b)"])),
)
groups = st.recursive(
    rules,
    lambda inner: st.one_of(
        a_mapping({"any": st.lists(inner, max_size=3)}),
        a_mapping({"all": st.lists(inner, max_size=3)}),
        a_mapping({"atLeast": st.just(1), "rules": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=6,
)
exclusions = a_mapping(
    {},
    optional={
        "weekends": st.sampled_from([True, False, "yes", "off"]),
        "dates": st.lists(dates, max_size=3),
        "days": st.lists(st.sampled_from(["monday", "Fri", "sunday"]), max_size=2),
        "calendar": st.sampled_from(["own", ["own"]]),
    },
)
evaluations = a_mapping(
    {}, optional={"window": durations, "interval": st.sampled_from(["1s", "5m"]), "reopen": st.booleans()}
)
schedules = a_mapping(
    {"trigger": rules},
    optional={
        "cron": st.sampled_from(["0 6 * * *", "*/5 * * * 1-5", "@daily", "0 0 L * *"]),
        "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
        "exclude": exclusions,
        "businessDays": st.one_of(st.sampled_from(["first", "last", 3, -2]), st.just([1, "last"])),
        "time": st.sampled_from(["6:00", "23:59"]),
        "evaluation": evaluations,
        "misfire": st.one_of(st.sampled_from(["skip", "all"]), a_mapping({"maxLateness": durations})),
    },
)
slas = a_mapping(
    {"deadline": st.sampled_from(["8:00", ":30", "23:59"])},
    optional={
        "expectedDuration": durations,
        "maxDuration": durations,
        "evaluationDeadline": st.sampled_from(["5:00", ":10"]),
        "maxEvaluation": durations,
        "timezone": st.sampled_from(["UTC", "Asia/Tokyo"]),
        "critical": st.booleans(),
        "dayOffset": st.integers(-7, 7),
    },
)
jobs = st.one_of(
    a_mapping(
        {"type": st.just("glue"), "config": a_mapping({"job_name": texts})},
        optional={"maxRetries": st.integers(0, 10)},
    ),
    a_mapping(
        {
            "type": st.just("step-function"),
            "config": a_mapping(
                {"stateMachineArn": texts}, optional={"input": st.dictionaries(texts, json_values, max_size=3)}
            ),
        }
    ),
)
files = a_mapping(
    {
        "pipeline": a_mapping({"id": names}, optional={"owner": texts}),
        "job": jobs,
        "calendars": st.just({"own": {"days": ["tue"]}}),
    },
    optional={
        "schedule": schedules,
        "sla": slas,
        "exclusions": exclusions,
        "validation": a_mapping(
            {
                "trigger": st.sampled_from(["ALL", "any", {"atLeast": 1}]),
                "rules": st.lists(groups, min_size=1, max_size=3),
            }
        ),
        "postRun": a_mapping(
            {},
            optional={
                "rules": st.lists(groups, max_size=2),
                "evaluation": evaluations,
                "driftThreshold": st.floats(0, 10),
            },
        ),
    },
)


@settings(max_examples=100)
@given(files)
def test_a_pipeline_that_is_written_is_read_as_the_same_and_written_the_same(file: dict[str, Any]) -> None:
    if "schedule" not in file and "maxDuration" in file.get("sla", {}):
        del file["sla"]
    loaded = load_text(json.dumps(file), today=TODAY)
    assert [str(problem) for problem in loaded.errors] == []
    pipeline = loaded.pipeline
    assert pipeline is not None

    for write in (to_json, to_yaml):
        again = load_text(write(pipeline)).pipeline
        assert again == pipeline
        assert again is not None
        assert write(again) == write(pipeline)


pieces = st.sampled_from(
    ["${DATE}", "$${", "${", "}", "$", "$DATE", "x", "${INTERLOCK_A}", "$${INTERLOCK_A}", "${nope}"]
)


@given(st.lists(pieces, max_size=8).map("".join), st.text(alphabet="${}DATE", max_size=8))
def test_the_value_of_a_variable_is_never_looked_into(text: str, value: str) -> None:
    stand_in = "\N{BULLET}"

    assert render(text, {"DATE": value}) == render(text, {"DATE": stand_in}).replace(stand_in, value)
