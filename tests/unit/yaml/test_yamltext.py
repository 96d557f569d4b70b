"""YAML text: the dialect, the places, the limits."""

import tracemalloc

import pytest

from worker.yaml.document import BadYaml, TextMark, texts
from worker.yaml.parser import DEPTH_MAX, NODES_MAX, TEXT_BYTES_MAX, is_text, read_yaml


def refusal(text: str) -> BadYaml:
    with pytest.raises(BadYaml) as caught:
        read_yaml(text)
    return caught.value


@pytest.mark.parametrize(
    "text", ["10:00", "2026-03-31", "007", "0x1F", "0o17", "1_000", "yes", "on", "1h", ".inf", "1d"]
)
def test_what_only_looks_like_a_value_stays_text(text: str) -> None:
    assert read_yaml(f"a: {text}").value == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("+5", 5),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("9" * 38, int("9" * 38)),
    ],
)
def test_the_core_schema_is_read(text: str, value: object) -> None:
    assert read_yaml(f"a: {text}").value == {"a": value}


def test_a_quoted_scalar_is_always_text() -> None:
    assert read_yaml("[\"1\", 'true', \"\", '~']").value == ["1", "true", "", "~"]


@pytest.mark.parametrize("text", ["1e3", "5", "~", "true", "<<", "1.", ""])
def test_what_would_not_be_read_back_as_text_is_known(text: str) -> None:
    assert not is_text(text)


def test_an_empty_text_is_nothing() -> None:
    assert read_yaml("").value is None


def test_aliases_and_merges_are_followed_and_own_keys_win() -> None:
    document = read_yaml("base: &b {x: 1, y: 2}\nlist: &l [{z: 3}, {y: 9}]\nown: {<<: *b, y: 5}\nboth: {<<: *l}\n")

    assert document.value == {
        "base": {"x": 1, "y": 2},
        "list": [{"z": 3}, {"y": 9}],
        "own": {"x": 1, "y": 5},
        "both": {"z": 3, "y": 9},
    }


def test_a_merge_sign_that_merges_nothing_is_text() -> None:
    assert read_yaml("'<<': 1").value == {"<<": 1}
    assert read_yaml("[<<]").value == ["<<"]


def test_json_with_surrogate_pairs_is_read() -> None:
    assert read_yaml('{"a": "\\ud83d\\ude00", "b": "\\\\ud83d\\\\ude00"}').value == {"a": "😀", "b": "\\ud83d\\ude00"}


def test_every_key_and_value_has_a_place() -> None:
    document = read_yaml("a:\n  b: [1, x]\n  c: 2\n")

    assert document.locate(()) == TextMark(1, 1)
    assert document.locate(("a", "b"), key=True) == TextMark(2, 3)
    assert document.locate(("a", "b")) == TextMark(2, 6)
    assert document.locate(("a", "b", 1)) == TextMark(2, 10)


def test_what_is_missing_is_shown_by_the_key_that_should_hold_it() -> None:
    document = read_yaml("a: 1\njob:\n  config: {}\n")

    assert document.locate(("job", "type")) == TextMark(2, 1)
    assert document.locate(("nowhere", 3)) == TextMark(1, 1)


def test_a_place_is_found_whatever_the_spelling_of_the_key() -> None:
    assert read_yaml("job: {dag_id: 5}").locate(("job", "dagId")) == TextMark(1, 15)


def test_mistakes_that_do_not_stop_the_reading_are_all_reported() -> None:
    document = read_yaml(
        "a: 1\na: 2\n5: x\n? [k]\n: y\nt: !!python/object:os.system ls\nn: " + "1" * 39 + "\nf: 1e999\n<<: 3\n"
    )

    assert [(fault.mark.line, fault.message) for fault in document.faults] == [
        (2, "key `a` is given twice"),
        (3, "a key must be text, found a number, true, false or null"),
        (4, "a key must be text, found a mapping or list"),
        (6, "tag tag:yaml.org,2002:python/object:os.system is not supported"),
        (7, "a number of 39 digits; at most 38 are kept"),
        (8, "1e999 is beyond the largest number there is"),
        (9, "`<<` takes a mapping or a list of mappings"),
    ]
    assert document.value == {"a": 2, "t": "ls", "n": None, "f": None}


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("{{invalid", 2, 1, "flow mapping"),
        ("pipeline:\n\tid: p1\n", 2, 1, "cannot start any token"),
        ("a: 1\nb: * * * * *\n", 2, 5, "alias"),
        ("a: &x [*x]", 1, 8, "alias *x stands inside what it stands for"),
        ("a: *x", 1, 4, "alias *x has no anchor &x before it"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document begins here"),
        ("a: x\ny\x00z", 2, 2, "character #x0000 is not allowed"),
        ("ab\nc\ud800", 2, 2, "half of a surrogate pair"),
    ],
)
def test_a_refusal_says_where_and_why(text: str, line: int, column: int, part: str) -> None:
    fault = refusal(text).fault

    assert (fault.mark.line, fault.mark.column) == (line, column)
    assert part in fault.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cron: * * * * *", "text that begins with `*`, `&` or `%` must be quoted"),
        ("sla: {deadline: :45}", "text that begins with `:` must be quoted"),
        ("note: daily: from the shop", "quote text that has a colon and a space"),
        ("a:\n  b: 1\n   c: 2", "indent keys of one section alike"),
        ("a:\n  b: 1\n c: 2", "indent keys of one section alike"),
        ("{key: a check: b}", "put a comma before it"),
        ("a: 1\nb\n", "write `key: value`"),
        ("a: - b", "begin the list on a line of its own"),
        ('a: "b', "close the quotation mark"),
        ("a:\n\tb: 1", "indent with spaces"),
    ],
)
def test_the_mistakes_that_are_made_most_come_with_what_to_do(text: str, hint: str) -> None:
    assert hint in refusal(text).fault.hint


def test_nesting_is_accepted_to_the_limit_and_not_beyond() -> None:
    assert read_yaml("[" * DEPTH_MAX + "]" * DEPTH_MAX).value
    assert "deeper than 32" in str(refusal("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)))


def test_values_are_counted_as_if_aliases_were_written_out() -> None:
    tens = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\nb: &b [" + ", ".join(["*a"] * 99) + "]\n"

    assert read_yaml(tens + "c: [*b, *b]").value
    assert f"more than {NODES_MAX:,} values" in str(refusal(tens + "c: [" + ", ".join(["*b"] * 21) + "]"))


def _laughs(levels: int) -> str:
    lines = ["l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


HOSTILE = {
    "deep lists": "[" * (TEXT_BYTES_MAX - 1),
    "deep mappings": "{a: " * 60_000,
    "deep block": "\n".join(" " * n + "a:" for n in range(500)),
    "a billion laughs": _laughs(10),
    "a long text repeated": "a: &a " + "x" * 100_000 + "\nb: [" + ", ".join(["*a"] * 5000) + "]",
    "merges of merges": "a: &a {" + ", ".join(f"k{n}: 1" for n in range(900)) + "}\nb: [" + "{<<: *a}, " * 900 + "]",
    "one megabyte": "a: " + "x" * 1_000_000,
    "a huge key": "? " + "k" * 5000 + "\n: 1",
    "many values": "[" + "1," * 100_000 + "]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_in_bounded_memory(name: str) -> None:
    tracemalloc.start()
    try:
        refusal(HOSTILE[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 32 * 1024 * 1024


def test_a_huge_number_is_never_converted() -> None:
    assert read_yaml("a: " + "9" * 200_000).value == {"a": None}


def test_every_text_inside_a_value_is_found_with_its_path() -> None:
    found = list(texts({"a": ["x", {"b": "y"}], "c": 5, "d": "z"}))

    assert found == [(("a", 0), "x"), (("a", 1, "b"), "y"), (("d",), "z")]
