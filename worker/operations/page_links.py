"""Paths and addresses of the console's pages: the only place that builds them.

Alerts, events on the bus, records and the pages themselves link with these. Their shapes are a contract, because people
keep links: a run has one page for ever, also before it exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from worker.core.model.keys import RunKey


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
        base = self.url.rstrip("/")
        if not (base and pipeline) or urlsplit(base).scheme not in {"http", "https"}:
            return ""
        return f"{base}{run_path(pipeline, schedule, period) if schedule and period else pipeline_page(pipeline)}"


NO_PAGES: Final = PublicPages()
