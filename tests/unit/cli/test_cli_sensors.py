"""`interlock sensor`: how typed values are understood, what is stored, and what is said about mistakes."""

import io
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders.command_line import interlock, records
from worker.cli.commands.sensor_rows import show_sensor
from worker.cli.commands.sensor_values import sensor_data
from worker.cli.terminal.console import Screen, json_text
from worker.core.errors import ConfigError
from worker.core.model.exact_json import read_json
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.store.repos.sensors import Sensor
from worker.store.table import ROW_BYTES_MAX

PIPELINE = """\
pipeline: {id: orders}
schedule: {cron: "0 6 * * *"}
job: {type: command, config: {command: load}}
"""


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    (here / "orders.yaml").write_text(PIPELINE)
    assert interlock("store", "init").exit_code == 0
    assert interlock("pipelines", "push", "orders.yaml", "--yes").exit_code == 0


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1200", 1200),
        ("-3", -3),
        ("0.1", Decimal("0.1")),
        ("1e3", Decimal("1e3")),
        ("true", True),
        ("false", False),
        ("null", None),
        ("complete", "complete"),
        ("", ""),
        ("a=b", "a=b"),
        ("007", "007"),
        ("True", "True"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("2026-03-03", "2026-03-03"),
        ('"42"', "42"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
    ],
)
def test_a_value_is_a_number_a_flag_nothing_json_or_else_text(typed: str, value: Json) -> None:
    found = sensor_data([f"field={typed}"], None)

    assert found == {"field": value}
    assert type(found["field"]) is type(value)


@pytest.mark.parametrize("typed", ["[draft]", '"half', "{x}"])
def test_a_value_that_only_begins_like_json_is_refused_with_how_to_quote_it(typed: str) -> None:
    with pytest.raises(ConfigError, match="quote it to make it text: note="):
        sensor_data([f"note={typed}"], None)


@pytest.mark.parametrize("fields", [["rows"], ["=1"], ["rows=1", "rows=2"]])
def test_a_field_without_name_or_value_or_given_twice_is_refused(fields: list[str]) -> None:
    with pytest.raises(ConfigError):
        sensor_data(fields, None)


def test_fields_beside_an_object_replace_its_own() -> None:
    assert sensor_data(["rows=2"], '{"rows": 1, "status": "complete"}') == {"rows": 2, "status": "complete"}


@pytest.mark.parametrize("data", ["[1]", "1", "{", '{"a": NaN}', '{"a": 1, "a": 2}', "@missing.json", "[" * 100_000])
def test_data_that_is_no_object_is_refused(data: str) -> None:
    with pytest.raises(ConfigError):
        sensor_data([], data)


def test_data_larger_than_a_row_is_not_read_to_its_end() -> None:
    Path("large.json").write_text(" " * (ROW_BYTES_MAX + 1))

    with pytest.raises(ConfigError, match="more than a row holds"):
        sensor_data([], "@large.json")


def test_data_that_is_no_text_is_refused() -> None:
    Path("binary.json").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        sensor_data([], "@binary.json")


@pytest.mark.parametrize("text", ['{"a": 0.1, "b": [1, null, "x"], "c": 123456789012345678901234567890}', "1E+3"])
def test_numbers_keep_their_digits_on_the_way_out(text: str) -> None:
    assert json_text(read_json(text)) == text


# --- put --------------------------------------------------------------------------------------------------------------


def test_put_stores_the_whole_sensor_and_prints_it_as_json_on_a_pipe() -> None:
    interlock("sensor", "put", "orders", "export", "old=1")

    result = interlock("sensor", "put", "orders", "export", "rows=1200", "share=0.10", "status=complete")

    assert (result.exit_code, result.stderr) == (0, "")
    expected = '{"rows": 1200, "share": 0.1, "status": "complete"}'
    assert result.stdout == f'{{"type": "sensor", "pipeline": "orders", "key": "export", "data": {expected}}}\n'
    assert interlock("sensor", "get", "orders", "export").stdout == result.stdout


def test_a_terminal_gets_a_table() -> None:
    out = io.StringIO()
    screen = Screen(out=Console(file=out, force_terminal=True, width=100, color_system=None))

    show_sensor(screen, PipelineId("orders"), Sensor("export", {"rows": Decimal("0.10"), "ok": True}), as_json=False)

    assert out.getvalue().splitlines() == ["orders export", "  rows  0.10", "  ok    true"]


@pytest.mark.parametrize("period", ["2026-03-03", "20260303"])
def test_a_period_is_added_to_the_key(period: str) -> None:
    [stored] = records(interlock("sensor", "put", "orders", "export", "rows=1", "--period", period).stdout)

    assert stored["key"] == "export#2026-03-03"


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "rows=1", "--period", "yesterday"],
        ["export#2026-03-03", "rows=1", "--period", "2026-03-03"],
        ["", "rows=1"],
        ["export"],
        ["export", "--data", "[1]"],
    ],
)
def test_a_put_that_makes_no_sense_exits_with_2_and_writes_nothing(arguments: list[str]) -> None:
    result = interlock("sensor", "put", "orders", *arguments)

    assert result.exit_code == 2
    assert interlock("sensor", "list", "orders").stdout == ""


@pytest.mark.parametrize("data", ['{"deep": ' + "[" * 40 + "]" * 40 + "}", '{"digits": ' + "1" * 39 + "}"])
def test_data_no_backend_can_hold_exits_with_1(data: str) -> None:
    result = interlock("sensor", "put", "orders", "export", "--data", data)

    assert result.exit_code == 1
    assert "store it as text" in result.stderr


@pytest.mark.parametrize("source", ["@sensor.json", "@-"])
def test_data_comes_from_a_file_or_from_standard_input(source: str) -> None:
    Path("sensor.json").write_text('{"rows": 7}')

    [stored] = records(interlock("sensor", "put", "orders", "export", "--data", source, typed='{"rows": 7}').stdout)

    assert stored["data"] == {"rows": 7}


def test_a_sensor_of_an_unknown_pipeline_is_stored_with_a_warning_and_a_suggestion() -> None:
    result = interlock("sensor", "put", "ordres", "export", "rows=1")

    assert result.exit_code == 0
    assert result.stderr == "warning: there is no pipeline ordres in the store; did you mean `orders`?\n"
    assert interlock("sensor", "get", "ordres", "export").exit_code == 0


WATCHED = """\
pipeline: {id: watched}
schedule: {trigger: {key: ready, check: exists, match: prefix}}
validation: {rules: [{key: export, check: gte, field: rows, value: 1}]}
postRun: {rules: [{key: summary, check: exists}]}
job: {type: command, config: {command: load}}
"""


@pytest.mark.parametrize(
    ("key", "warning"),
    [
        ("exprot", "warning: nothing in watched reads exprot; did you mean `export`?\n"),
        ("sumary#2026-03-03", "warning: nothing in watched reads sumary#2026-03-03; did you mean `summary`?\n"),
        ("export", ""),
        ("export#2026-03-03", ""),
        ("ready-eu", ""),
        ("summary", ""),
        ("weather", ""),
    ],
)
def test_a_key_that_nothing_looks_at_gets_a_warning_if_it_is_like_one_that_is_looked_at(
    here: Path, key: str, warning: str
) -> None:
    (here / "watched.yaml").write_text(WATCHED)
    assert interlock("pipelines", "push", "watched.yaml", "--yes").exit_code == 0

    result = interlock("sensor", "put", "watched", key, "rows=1")

    assert (result.exit_code, result.stderr) == (0, warning)


# --- get and list -----------------------------------------------------------------------------------------------------


def test_get_with_a_period_shows_what_rules_of_the_period_see() -> None:
    interlock("sensor", "put", "orders", "export", "rows=1")
    interlock("sensor", "put", "orders", "export#20260303", "rows=2")

    dated = interlock("sensor", "get", "orders", "export", "--period", "2026-03-03")
    plain = interlock("sensor", "get", "orders", "export", "--period", "2026-03-04")

    assert [record["key"] for record in records(dated.stdout + plain.stdout)] == ["export#20260303", "export"]


def test_a_missing_sensor_exits_with_2_and_a_suggestion() -> None:
    interlock("sensor", "put", "orders", "export", "rows=1")

    result = interlock("sensor", "get", "orders", "exprot")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == ["error: there is no sensor exprot of orders", "    did you mean `export`?"]


def test_the_list_is_in_order_and_can_be_narrowed() -> None:
    for key in ("b", "a#2026-03-03", "a"):
        interlock("sensor", "put", "orders", key, "rows=1")

    everything = interlock("sensor", "list", "orders").stdout
    narrowed = interlock("sensor", "list", "orders", "--prefix", "a").stdout

    assert [record["key"] for record in records(everything)] == ["a", "a#2026-03-03", "b"]
    assert [record["key"] for record in records(narrowed)] == ["a", "a#2026-03-03"]


def test_a_list_that_was_cut_says_so() -> None:
    for key in ("a", "b"):
        interlock("sensor", "put", "orders", key, "rows=1")

    cut, whole = (interlock("sensor", "list", "orders", "--limit", limit) for limit in (1, 2))

    assert [record["type"] for record in records(cut.stdout)] == ["sensor", "truncated"]
    assert records(cut.stdout)[-1] == {
        "type": "truncated",
        "what": "sensors",
        "shown": 1,
        "total": None,
        "isExact": False,
        "hint": "narrow with --prefix, or raise --limit",
    }
    assert "there are more than 1" in cut.stderr
    assert (len(records(whole.stdout)), whole.stderr) == (2, "")


def test_the_empty_list_of_an_unknown_pipeline_is_explained() -> None:
    result = interlock("sensor", "list", "ordres")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean `orders`?" in result.stderr


# --- periods ----------------------------------------------------------------------------------------------------------


TRIGGERED = """\
pipeline: {id: clicks}
schedule:
  cron: "0 * * * *"
  trigger: {key: export, check: exists}
job: {type: command, config: {command: load}}
"""


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (
            ["export", "rows=9", "--period", "2062-03-03T07"],
            "export#2062-03-03T07 will begin no run: 2062-03-03T07 begins more",
        ),
        (["export", "date=2062-03-03", "hour=7"], "export will begin no run: 2062-03-03T07 begins more than 48h from"),
        (
            ["export", "rows=9", "--period", "2020-03-03T07"],
            "will begin no run: 2020-03-03T07 is before 2026-02-22; runs of",
        ),
        (
            ["export", "rows=9", "--period", "2027-03-22"],
            "names a day, and the schedule expects an hour; name a period like",
        ),
        (["export", "rows=9", "--period", "2027-03-22T07"], ""),
        (["other", "rows=9", "--period", "2062-03-22T07"], ""),
    ],
)
def test_whoever_writes_a_trigger_is_told_what_will_become_of_its_period(
    here: Path, arguments: list[str], warning: str
) -> None:
    (here / "clicks.yaml").write_text(TRIGGERED)
    assert interlock("pipelines", "push", "clicks.yaml", "--yes").exit_code == 0

    result = interlock("sensor", "put", "clicks", *arguments)

    assert result.exit_code == 0
    assert result.stderr.count("warning") == (1 if warning else 0)
    assert warning in " ".join(result.stderr.split())
