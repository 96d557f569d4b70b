"""Links of the console's pages to each other, below the path of the public URL."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from worker.core.model.keys import RunKey
from worker.operations.page_links import page_path, run_path


@dataclass(frozen=True, slots=True)
class Links:
    """Builds paths. `base` is the path of the public URL, which a proxy in front removes; "" without one."""

    base: str = ""

    @classmethod
    def below(cls, public_url: str) -> "Links":
        return cls(urlsplit(public_url).path.rstrip("/"))

    def to(self, *parts: str, **query: str) -> str:
        """Return the path of these parts; members of the query that are empty are left out."""
        return f"{self.base}{page_path(*parts, query=query)}"

    def run(self, key: RunKey, *parts: str, **query: str) -> str:
        return self.to("runs", key.pipeline, key.schedule, str(key.period), *parts, **query)

    def run_named(self, pipeline: str, schedule: str, period: str) -> str:
        return f"{self.base}{run_path(pipeline, schedule, period)}"

    def pipeline(self, pipeline: str, *parts: str, **query: str) -> str:
        return self.to("pipelines", pipeline, *parts, **query)


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
