"""The console's limits: each measured figure next to its bound, and whether it is met."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MeasuredLimit:
    """MeasuredLimit is one row. `note` says what else a reader needs to judge it."""

    name: str
    figure: float
    bound: float
    unit: str
    note: str = ""

    @property
    def is_met(self) -> bool:
        return self.figure <= self.bound

    @property
    def text(self) -> str:
        shown = f"{self.figure:,.0f}" if self.figure >= 100 else f"{self.figure:,.1f}"
        word = "met   " if self.is_met else "MISSED"
        bound = f"{self.bound:g} {self.unit}"
        return f"{word}  {self.name:<66} {shown:>8} {self.unit:<6} at most {bound:<10} {self.note}".rstrip()


@dataclass(slots=True)
class LimitTable:
    rows: list[MeasuredLimit] = field(default_factory=list[MeasuredLimit])

    def add(self, name: str, figure: float, bound: float, unit: str, note: str = "") -> None:
        self.rows.append(MeasuredLimit(name, figure, bound, unit, note))
        print(self.rows[-1].text, flush=True)

    def show(self) -> None:
        print("\nlimits")
        print("\n".join(row.text for row in self.rows))
        print(f"{sum(row.is_met for row in self.rows)} of {len(self.rows)} met")
