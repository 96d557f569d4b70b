"""Limits that every backend shares, checked before a commit is sent; and the text form of numbers."""

from collections.abc import Collection, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal
from typing import Final, cast

from worker.core.errors import Rejected
from worker.store.table import (
    KEY_BYTES_MAX,
    ROW_BYTES_MAX,
    WRITES_MAX,
    Check,
    Key,
    Put,
    Row,
    TableName,
    TooLarge,
    Update,
    Write,
)

COMMIT_BYTES_MAX: Final = 4_000_000
DEPTH_MAX: Final = 32
NUMBER_BYTES: Final = 21  # the most a number takes; an exact count would cost more than it is worth
CONTAINER_BYTES: Final = 3
KEY_ATTRIBUTES: Final = frozenset({"PK", "SK"})
# How much larger than its JSON a row can be, as the limits count it: a digit and a comma count as a number of 21 bytes,
# and nothing else counts as more per byte.
BYTES_PER_JSON_BYTE: Final = 16


def check_commit(writes: Sequence[Write]) -> None:
    """Raise `TooLarge` for a commit beyond the limits, `Rejected` for one that no backend may apply."""
    check_form(writes)
    check_size(writes)


def check_form(writes: Sequence[Write]) -> None:
    """Do the part of `check_commit` that does not look at values."""
    if not writes:
        raise Rejected("a commit without writes has nothing to apply; leave it out")
    if len(writes) > WRITES_MAX:
        raise TooLarge(f"a commit of {len(writes)} writes is too large: at most {WRITES_MAX} fit; split it")
    if len({(write.table, write.key) for write in writes}) < len(writes):
        raise Rejected("a commit writes one row twice; merge the two writes into one")
    if len(writes) > 1 or isinstance(writes[0], Check):
        _check_producers_are_left_alone(writes)
    for write in writes:
        check_key(write.key)
        if isinstance(write, Update):
            _check_names(write)


def check_size(writes: Sequence[Write]) -> None:
    """Do the part of `check_commit` that looks at every value.

    A backend that encodes rows can often do without.
    """
    size = sum(_write_bytes(write) for write in writes)
    if size > COMMIT_BYTES_MAX:
        raise TooLarge(f"a commit of about {size} bytes is too large: at most {COMMIT_BYTES_MAX} fit; split it")


def check_key(key: Key) -> None:
    """Raise `TooLarge` for a key no backend can hold, `Rejected` for an empty one."""
    for name, text in (("PK", key.pk), ("SK", key.sk)):
        if not text:
            raise Rejected(f"a key with an empty {name} names no row (PK {key.pk!r}, SK {key.sk!r})")
        if _text_bytes(text) > KEY_BYTES_MAX:
            raise TooLarge(f"the {name} {text[:60]!r}… is too long: at most {KEY_BYTES_MAX} bytes fit")


def row_bytes(row: Row) -> int:
    """Return the size of a row as the limits count it. Raises `TooLarge` if it is nested too deep.

    The size counts names and values, rounded up.
    """
    return _members_bytes(row, 1)


def value_bytes(value: object) -> int:
    """Return the size of one attribute's value as the limits count it. Raises `TooLarge` and `Rejected`."""
    return _value_bytes(value, 1)


def _check_producers_are_left_alone(writes: Sequence[Write]) -> None:
    """Raise `Rejected` for a transaction that writes a producer's row.

    A row in a transaction refuses plain writes meanwhile, and producers do not retry.
    """
    for write in writes:
        if write.table is TableName.CONTROL and (write.key.sk == "CONFIG" or write.key.sk.startswith("SENSOR#")):
            raise Rejected(
                f"{write.key.pk} {write.key.sk} is a row that producers write, so it cannot be part of a transaction; "
                "write it in a commit of its own, or keep what you know of it on a row of yours"
            )


def _write_bytes(write: Write) -> int:
    key = write.key
    if isinstance(write, Put):
        size = row_bytes(write.row)
    elif isinstance(write, Update):
        size = row_bytes(write.set) + row_bytes(write.set_if_absent)
    else:
        return 0
    if size > ROW_BYTES_MAX:
        raise TooLarge(
            f"{type(write).__name__} of {write.table} {key.pk} {key.sk} has {size} bytes; at most {ROW_BYTES_MAX} "
            "fit in a row: keep large data elsewhere and store where it is"
        )
    return size


def _check_names(write: Update) -> None:
    """Reject what DynamoDB rejects: an update of nothing, of one attribute twice, or of the key."""
    named = [*write.set, *write.set_if_absent, *write.remove]
    where = f"Update of {write.table} {write.key.pk} {write.key.sk}"
    if not named:
        raise Rejected(f"{where} changes nothing; use a Check, or leave it out")
    if len(set(named)) < len(named):
        raise Rejected(f"{where} names an attribute twice; name it once")
    if not KEY_ATTRIBUTES.isdisjoint(named):
        raise Rejected(f"{where} changes the key; put a row with the new key and delete this one")


def _members_bytes(members: Mapping[str, object], depth: int) -> int:
    size = 0
    for name, value in members.items():
        size += len(name) if name.isascii() else _text_bytes(name)
        # Fast path: nearly all values are short ASCII texts, and every commit passes here.
        size += len(value) if isinstance(value, str) and value.isascii() else _value_bytes(value, depth)
    return size


def _value_bytes(value: object, depth: int) -> int:
    if isinstance(value, str):
        return _text_bytes(value)
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int | float | Decimal):
        return NUMBER_BYTES
    if isinstance(value, bytes | bytearray):
        return len(value)
    return _container_bytes(value, depth)


def _container_bytes(value: object, depth: int) -> int:
    if depth > DEPTH_MAX:
        raise TooLarge(f"a value is nested deeper than {DEPTH_MAX} levels; flatten it or store it as text")
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        inner = len(members) + _members_bytes(members, depth + 1)
    elif isinstance(value, list | tuple | frozenset | set):
        inner = sum(_value_bytes(member, depth + 1) + 1 for member in cast("Collection[object]", value))
    else:
        raise Rejected(f"a value of type {type(value).__name__} cannot be stored; convert it to text or a number")
    return CONTAINER_BYTES + inner


def _text_bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise Rejected(f"the text {text[:60]!r} is not valid Unicode ({error.reason}); fix its writer") from error


DIGITS_MAX: Final = 38
# Raises instead of rounding, or of leaving 1E-130 … 9.9E+125, so that no neighbouring number is stored.
EXACT: Final = Context(prec=DIGITS_MAX, Emin=-130, Emax=125, traps=[Inexact, Overflow, Subnormal, InvalidOperation])
SURELY_FITS: Final = 10**18  # the digits of a smaller int need no check


def number_to_text(value: float | Decimal) -> str:
    """Return the canonical text of a number: 1.50, 1.5 and Decimal("15E-1") are all "1.5".

    Raises `TooLarge` for what no backend can hold: over 38 digits, out of range, infinite, not a number.
    """
    if isinstance(value, int) and -SURELY_FITS < value < SURELY_FITS:
        return str(int(value))
    # The shortest text that reads back as the same float is what its author wrote: 0.1 stays 0.1.
    number = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    try:
        exact = EXACT.normalize(number)
    except (Inexact, Overflow, Subnormal, InvalidOperation):
        exact = Decimal("NaN")
    if not exact.is_finite():
        raise TooLarge(
            f"the number {str(number)[:60]} cannot be stored exactly: at most {DIGITS_MAX} digits between 1E-130 and "
            "9.9E+125 are kept; store it as text"
        )
    return str(exact) if exact else "0"  # minus zero is zero


def number_from_text(text: str) -> int | Decimal:
    """Parse a stored number exactly: an `int` if it is whole, a `Decimal` otherwise."""
    if text.isdecimal() or text[1:].isdecimal():
        return int(text)
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number
