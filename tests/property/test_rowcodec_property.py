"""Any row comes back as it was, equal rows have equal bytes, and numbers sort as numbers do."""

from collections.abc import Mapping
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from worker.core.errors import Rejected
from worker.store.index_entries import number_sort
from worker.store.limits import number_from_text, number_to_text
from worker.store.row_codec import decode, encode
from worker.store.sqlite.conditions import holds
from worker.store.sqlite.ranges import range_of, read_cursor, write_cursor
from worker.store.table import Equals, Less, Prefix, Value


def scaled(digits: int, exponent: int) -> Decimal:
    return Decimal(digits).scaleb(exponent)


TEXTS = st.text(st.characters(codec="utf-8"))
INTS = st.integers(-(10**38) + 1, 10**38 - 1)
DECIMALS = st.builds(scaled, st.integers(-(10**27), 10**27), st.integers(-100, 90))
NUMBERS = INTS | DECIMALS.map(lambda number: number_from_text(number_to_text(number)))
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.binary()
SETS = st.frozensets(TEXTS, min_size=1) | st.frozensets(NUMBERS, min_size=1) | st.frozensets(st.binary(), min_size=1)
# Names that look like our own tags are the interesting ones.
NAMES = TEXTS | st.sampled_from(["$n", "$b", "$m", "$ss", "$ns", "$bs", "$"])
VALUES = st.recursive(SCALARS | SETS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8)


def typed(value: Value) -> object:
    """The value with its types spelled out, because Python takes True for 1."""
    match value:
        case Mapping():
            return {name: typed(member) for name, member in value.items()}
        case list() | tuple():
            return [typed(member) for member in value]
        case frozenset():
            return {(type(member).__name__, member) for member in value}
        case _:
            return type(value).__name__, value


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Value) -> None:
    assert typed(decode(encode(value))) == typed(value)


@given(VALUES)
def test_what_came_back_is_written_with_the_same_bytes(value: Value) -> None:
    assert encode(decode(encode(value))) == encode(value)


@given(VALUES, VALUES)
def test_bytes_are_equal_exactly_if_values_are(one: Value, other: Value) -> None:
    assert (encode(one) == encode(other)) == (typed(one) == typed(other))


@given(st.dictionaries(NAMES, VALUES, min_size=2))
def test_the_order_of_names_does_not_matter(row: dict[str, Value]) -> None:
    assert encode(row) == encode(dict(reversed(row.items())))


@given(VALUES)
def test_every_value_equals_itself_in_a_condition(value: Value) -> None:
    assert holds(Equals("attribute", value), {"attribute": value})


@given(NUMBERS, NUMBERS)
def test_numbers_are_less_as_numbers_and_sort_so_in_an_index(one: int | Decimal, other: int | Decimal) -> None:
    assert holds(Less("n", other), {"n": one}) == (one < other)
    assert (number_sort(one) < number_sort(other)) == (one < other)
    assert (number_sort(one) == number_sort(other)) == (one == other)


@given(TEXTS, TEXTS)
def test_texts_are_less_in_the_order_of_their_bytes(one: str, other: str) -> None:
    assert holds(Less("t", other), {"t": one}) == (one.encode() < other.encode())


@given(TEXTS.filter(bool), TEXTS)
def test_a_prefix_covers_exactly_the_texts_that_begin_with_it(prefix: str, text: str) -> None:
    low, high = (bound[0] for bound in (range_of(Prefix(prefix), None).low, range_of(Prefix(prefix), None).high))

    for candidate in (text, prefix + text):
        is_covered = str(low) <= candidate and (isinstance(high, bytes) or candidate < high)
        assert is_covered == candidate.startswith(prefix)


@given(TEXTS)
def test_a_cursor_leads_back_to_its_place(sk: str) -> None:
    assert read_cursor(write_cursor((sk,)), range_of(None, None)) == (sk,)


@given(TEXTS)
def test_a_text_from_outside_is_a_cursor_or_refused_and_nothing_else(text: str) -> None:
    try:
        [sk] = read_cursor(text, range_of(None, None))
    except Rejected:
        return
    assert isinstance(sk, str)
