"""Paths and addresses of the console's pages: the only place that builds them.

Alerts, events on the bus, records and the pages themselves link with these. Their shapes are a contract, because people
keep links: a run has one page for ever, also before it exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.time.timestamps import format_rfc3339


def page_path(*parts: str, query: Mapping[str, str] | None = None) -> str:
    """Return the path of a page; members of the query that are empty are left out."""
    given = {name: value for name, value in (query or {}).items() if value}
    path = "/".join(quote(part, safe="") for part in parts)
    return f"/{path}?{urlencode(given)}" if given else f"/{path}"


def run_path(pipeline: str, schedule: str, period: str) -> str:
    return page_path("runs", pipeline, schedule, period)


def run_page(key: RunKey) -> str:
    return run_path(key.pipeline, key.schedule, str(key.period))


def pipeline_page(pipeline: str) -> str:
    return page_path("pipelines", pipeline)


@dataclass(frozen=True, slots=True)
class PublicPages:
    """PublicPages builds addresses below the public URL; "" for each if there is no such URL."""

    url: str = ""

    def about(self, pipeline: str, schedule: str, period: str) -> str:
        """Return the address of a run's page, else of its pipeline's; "" without either."""
        base = self._base
        if not (base and pipeline):
            return ""
        return f"{base}{run_path(pipeline, schedule, period) if schedule and period else pipeline_page(pipeline)}"

    def about_many(self, event_type: str, since: datetime) -> str:
        """Return the address of a list of what a group of events is about; "" if there is none.

        Runs that failed for good are a list of runs, from which operators rerun them together.
        """
        if not self._base or event_type not in set(EventType):
            return ""
        at = format_rfc3339(since.replace(microsecond=0))
        if event_type == EventType.RETRY_EXHAUSTED:
            return f"{self._base}{page_path('runs', query={'state': 'failed', 'since': at})}"
        return f"{self._base}{page_path('events', query={'type': event_type, 'since': at})}"

    @property
    def _base(self) -> str:
        """Return the public URL without a slash at its end; "" if it is none that a browser may open."""
        return self.url.rstrip("/") if urlsplit(self.url).scheme in {"http", "https"} else ""


NO_PAGES: Final = PublicPages()
