"""How the console shows values: statuses with glyphs, times with zones, and texts of others."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from markupsafe import Markup, escape

from worker.core.time.durations import shown_duration, span
from worker.core.time.local_time import instants_of
from worker.operations.records import DeadlineRecord

TEXT_MAX: Final = 4_000
# What changes the direction of the text around it: shown by name, so that no value can rearrange the page.
_BIDI: Final = {
    number: f"[U+{number:04X}]" for number in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)
}
# Also what a browser may not show at all.
_CONTROLS: Final = {number: f"[U+{number:04X}]" for number in range(0x20) if chr(number) not in "\t\n\r"}

# A time as sentences write it: `2027-03-22 06:00 CET`, without its date, or with seconds.
_MOMENT: Final = re.compile(
    r"(?<![\w:.-])(\d{4}-\d\d-\d\d )?(\d\d:\d\d(?::\d\d)?) ([A-Z]{2,5}|[+-]\d\d(?:\d\d)?)(?!\w|:\d)"
)

THEMES: Final = ("auto", "light", "dark")
THEME_COOKIE: Final = "interlock-theme"


@dataclass(frozen=True, slots=True)
class Age:
    """Age is the time since a moment, or what is left until it: an open page counts on."""

    at: datetime
    text: str
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Badge:
    """Badge is a word with a glyph and a colour, so that none of the three is needed alone.

    `age` is the part of the word that changes with the time.
    """

    glyph: str
    word: str
    tone: str
    age: Age | None = None


_STATUSES: Final = {
    "waiting": ("○", "waiting"),
    "starting": ("◔", "running"),
    "running": ("▶", "running"),
    "stopping": ("■", "running"),
    "completed": ("✓", "completed"),
    "failed": ("✕", "failed"),
    "cancelled": ("\u2013", "waiting"),
    "missed": ("∅", "breached"),
    "paused": ("‖", "stuck"),
    "dry run": ("◌", "waiting"),
    "unreadable": ("?", "stuck"),
}


def status_badge(word: str | None) -> Badge:
    """Return the badge of a status; a word of another system is shown as it is."""
    if word is None:
        return Badge("·", "no run yet", "waiting")
    glyph, tone = _STATUSES.get(word, ("⇄", "waiting"))
    return Badge(glyph, word, tone)


def monitoring_badge(until: datetime | None, now: datetime) -> Badge | None:
    """Return the badge of a completed run whose results are still monitored."""
    if until is None or now >= until:
        return None
    left = time_left(until, now)
    return Badge("◉", f"monitoring for {left.text}", "waiting", left)


def gate_badge(word: str) -> Badge:
    return {
        "passed": Badge("✓", "passed", "completed"),
        "blocked": Badge("✕", "blocked", "failed"),
    }.get(word, Badge("?", word, "stuck"))


def deadline_badge(
    deadline: DeadlineRecord | None, now: datetime, *, ended_at: datetime | None = None, is_active: bool = False
) -> Badge | None:
    """Return how a deadline stands: its verdict, else how long is left or how late it is.

    `ended_at` is the end of the run; None if it has not ended, or if that is not known. An active run gets later and
    later, so the badge says by how much.
    """
    if deadline is None:
        return None
    if deadline.verdict == "breached" and ended_at is not None and ended_at > deadline.breach_at:
        return Badge("◆", f"{span(ended_at - deadline.breach_at)} late", "breached")
    if deadline.verdict == "breached" and is_active and now > deadline.breach_at:
        return late_badge(deadline.breach_at, now)
    match deadline.verdict:
        case "met":
            return Badge("✓", "deadline met", "completed")
        case "breached":
            return Badge("◆", "deadline breached", "breached")
        case "waived":
            return Badge("\u2013", "deadline waived", "waiting")
        case _:
            pass
    if now > deadline.breach_at:
        return late_badge(deadline.breach_at, now)
    left = time_left(deadline.breach_at, now)
    if deadline.warning_at is not None and now >= deadline.warning_at:
        return Badge("!", f"deadline in {left.text}, warned", "stuck", left)
    return Badge("◷", f"deadline in {left.text}", "waiting", left)


def late_badge(breach_at: datetime, now: datetime) -> Badge:
    age = age_of(breach_at, now)
    return Badge("◆", f"late {age.text}", "breached", age)


def age_of(at: datetime, now: datetime) -> Age:
    return Age(at, span(now - at))


def time_left(at: datetime, now: datetime) -> Age:
    return Age(at, span(at - now), is_left=True)


def took_of(seconds: float) -> str:
    """Return how long something took, as commands show it."""
    return shown_duration(timedelta(seconds=seconds))


def moment_text(at: datetime, zone: tzinfo = UTC) -> str:
    """Return a time with its zone: `2027-03-22 06:00:00 CET`."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def clock_text(at: datetime, now: datetime, zone: tzinfo = UTC) -> str:
    """Return a time with its zone, without the date if that is today's: `06:00 CET`."""
    local = at.astimezone(zone)
    is_today = local.date() == now.astimezone(zone).date()
    return f"{local:%H:%M %Z}" if is_today else f"{local:%Y-%m-%d %H:%M %Z}"


def plain(value: object) -> object:
    """Return a text as a page may show it: cut with a note, and with marks of direction by name."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    if value.isascii() and value.isprintable() and len(value) <= TEXT_MAX:
        return value  # most are, and a page has thousands
    cut = value[:TEXT_MAX]
    left = len(value) - len(cut)
    shown = cut.translate(_BIDI).translate(_CONTROLS)
    return f"{shown} … ({left:,} more characters)" if left else shown


def prose(text: object, zone: tzinfo, near: datetime | None = None) -> Markup:
    """Return a sentence as HTML: code between backticks, and times that follow the switch of the zone.

    `zone` is the one in which the sentence was written; a time that it cannot have written stays text. A time without
    a date is the one that is nearest to `near`.
    """
    shown = str(plain(f"{text}"))
    parts = shown.split("`")
    if len(parts) % 2 == 0:
        parts = [shown]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else Markup().join(_with_times(part, zone, near))
        for number, part in enumerate(parts)
    )


def _with_times(text: str, zone: tzinfo, near: datetime | None) -> Iterator[Markup]:
    end = 0
    for found in _MOMENT.finditer(text):
        at = _instant(found, zone, near)
        if at is None:
            continue
        yield escape(text[end : found.start()])
        yield Markup('<time datetime="{}">{}</time>').format(at.isoformat(), found[0])
        end = found.end()
    yield escape(text[end:])


def _instant(written: re.Match[str], zone: tzinfo, near: datetime | None) -> datetime | None:
    """Return when the zone's clock shows this; the name tells two hours of a night apart."""
    day, clock, name = written.groups()
    its_zone = UTC if name == "UTC" else zone
    try:
        days = [date.fromisoformat(day.strip())] if day else _days_around(near, its_zone)
        walls = [datetime.combine(each, time.fromisoformat(clock)) for each in days]
    except ValueError:
        return None
    found = [at for wall in walls for at in instants_of(wall, its_zone) if f"{at.astimezone(its_zone):%Z}" == name]
    return min(found, key=lambda at: abs(at - near) if near else timedelta(), default=None)


def _days_around(near: datetime | None, zone: tzinfo) -> list[date]:
    if near is None:
        return []
    today = near.astimezone(zone).date()
    return [today + timedelta(days=days) for days in (-1, 0, 1)]


def theme_of(cookies: Mapping[str, str]) -> str:
    """Return the chosen theme; anything but a known name counts as none."""
    chosen = cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]
