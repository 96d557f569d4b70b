"""Numbers as every backend stores them: exact decimal text of at most 38 digits, never a binary fraction."""

from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Subnormal
from typing import Final

from worker.store.table import TooLarge

DIGITS_MAX: Final = 38
# Refuses to round, and to leave 1E-130 … 9.9E+125, instead of storing a neighbour of the number it was given.
EXACT: Final = Context(prec=DIGITS_MAX, Emin=-130, Emax=125, traps=[Inexact, Overflow, Subnormal, InvalidOperation])
SURELY_FITS: Final = 10**18  # an int below this needs no look at its digits


def number_to_text(value: float | Decimal) -> str:
    """Write a number as the one text that means it: 1.50, 1.5 and Decimal("15E-1") are all "1.5".

    Raises `TooLarge` for what no backend can hold: over 38 digits, out of range, infinite, not a number.
    """
    if isinstance(value, int) and -SURELY_FITS < value < SURELY_FITS:
        return str(int(value))
    # The shortest text that reads back as a float is what its author wrote: 0.1 stays 0.1.
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
    """Read a stored number exactly: an `int` where it is whole, a `Decimal` otherwise."""
    if text.isdecimal() or text[1:].isdecimal():
        return int(text)
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number
