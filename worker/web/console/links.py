"""Links of the console: every path that a page shows is built here, below the path of the public URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from worker.core.model.keys import RunKey


@dataclass(frozen=True, slots=True)
class Links:
    """Builds paths. `base` is the path of the public URL, which a proxy in front removes; "" without one."""

    base: str = ""

    @classmethod
    def below(cls, public_url: str) -> "Links":
        return cls(urlsplit(public_url).path.rstrip("/"))

    def to(self, *parts: str, **query: str) -> str:
        """Return the path of these parts; members of the query that are empty are left out."""
        path = "/".join(quote(part, safe="") for part in parts)
        return f"{self.base}/{path}{_query(query)}"

    def run(self, key: RunKey, *parts: str) -> str:
        return self.to("runs", key.pipeline, key.schedule, str(key.period), *parts)

    def run_named(self, pipeline: str, schedule: str, period: str) -> str:
        return self.to("runs", pipeline, schedule, period)

    def pipeline(self, pipeline: str, *parts: str, **query: str) -> str:
        return self.to("pipelines", pipeline, *parts, **query)


def _query(members: Mapping[str, str]) -> str:
    given = {name: value for name, value in members.items() if value}
    return f"?{urlencode(given)}" if given else ""


def is_own_path(text: str) -> bool:
    """Return whether a text is a path of this server, so that a redirect to it leads nowhere else."""
    return text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()


def is_web_address(text: str) -> bool:
    """Return whether a text that others wrote may be a link: a browser would run `javascript:`."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)
