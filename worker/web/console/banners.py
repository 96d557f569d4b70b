"""Banners: what every page says first, because the rest cannot be trusted without it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.core.time.durations import span
from worker.web.live.updates import LiveUpdates


@dataclass(frozen=True, slots=True)
class Banner:
    """Banner is a sentence in a tone; `command` is what to run, and `page` where to look."""

    tone: str
    text: str
    command: str = ""
    page: str = ""


def banners(live: LiveUpdates, now: datetime) -> Sequence[Banner]:
    """Return what is wrong with the installation as a whole, as far as the mirror knows."""
    if live.as_of is None:
        return ()
    mirror, found = live.mirror, list[Banner]()
    if live.outage:
        age = span(now - live.as_of)
        found.append(Banner("bad", f"The store does not respond. What lists show is {age} old."))
    elif not mirror.alive(now.timestamp()):
        text = "No worker is running: nothing starts, and no deadline is watched. Start one:"
        found.append(Banner("bad", text, command="interlock run"))
    for each in mirror.degraded()[:3]:
        found.append(Banner("bad", f"The watchdog is degraded: {each.message}", page="workers"))
    count, is_exact = mirror.letters
    if count:
        number = f"{count:,}" if is_exact else f"At least {count:,}"
        noun = "dead letter waits" if count == 1 else "dead letters wait"
        found.append(Banner("warn", f"{number} {noun} for a decision.", page="deadletters"))
    return found
