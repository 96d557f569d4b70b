"""What the pages of the console share: the store, links, templates, and who looks."""

from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cache, partial
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from worker.core.model.run_names import UNNAMED
from worker.web.access import ANYONE, NOBODY, AccessRole, Caller
from worker.web.api.context import ApiContext, RequestAuthor
from worker.web.console.banners import banners
from worker.web.console.links import Links
from worker.web.console.rendering import page_response, rendered_text
from worker.web.console.row_texts import RowTexts
from worker.web.console.static_files import StaticFiles
from worker.web.console.wording import THEMES, clock_text, moment_text, plain, prose, status_badge, theme_of
from worker.web.guard import CALLER, REQUEST_ID
from worker.web.identity.browser_sessions import COOKIE, BrowserSessions
from worker.web.live.pipeline_list import PipelineLists
from worker.web.live.sections import AttentionFinder
from worker.web.live.sentences import WaitSentences
from worker.web.live.shared_results import SharedResults
from worker.web.live.slices import Slices
from worker.web.live.timeline import OwnerLanes

NAVIGATION: Final = (
    ("", "Overview"),
    ("pipelines", "Pipelines"),
    ("timeline", "Timeline"),
    ("events", "Events"),
    ("deadletters", "Dead letters"),
    ("workers", "Workers"),
    ("alerts", "Alerts"),
)
PARTS_MAX: Final = 64  # parts of pages that are kept for other viewers; each has some ten kB
# What a page says after an action, by the member `done` of its query.
DONE: Final = {
    "rerun": "The rerun is requested: a worker answers within seconds, and the history shows it.",
    "cancel": "The cancellation is requested: a worker answers within seconds, and the history shows it.",
    "pause": "The pipeline is paused.",
    "resume": "The pipeline is resumed.",
    "replay": "The replay is requested: a worker processes it within 30 seconds.",
    "drop": "The dead letter is dropped.",
}


@dataclass(frozen=True, slots=True)
class LivePart:
    """LivePart makes a whole page live: it is fetched again from `url` when its run or pipeline changes."""

    kind: str
    url: str
    run: str
    pipeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Renders pages. `is_read_only`: nobody may change anything.

    `sessions`: browsers can sign in with tokens. `installation` names what people look at, in header and titles.
    """

    context: ApiContext
    links: Links = field(default_factory=Links)
    sessions: BrowserSessions | None = None
    is_read_only: bool = False
    installation: str = ""
    static: StaticFiles = field(default_factory=StaticFiles)
    finder: AttentionFinder = field(init=False)
    sentences: WaitSentences = field(init=False)
    lists: PipelineLists = field(init=False)
    owners: OwnerLanes = field(init=False)
    rows: RowTexts = field(default_factory=RowTexts)
    _parts: SharedResults[Markup] = field(default_factory=lambda: SharedResults[Markup](PARTS_MAX, "part"))
    _templates: Environment = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_templates", _environment())
        object.__setattr__(self, "finder", self.context.live.finder)
        object.__setattr__(self, "sentences", WaitSentences(self.context.tables, self.context.clock))
        object.__setattr__(self, "lists", PipelineLists(self.context.clock))
        object.__setattr__(self, "owners", OwnerLanes(self.context.clock))

    def warm_up(self) -> None:
        """Compile all templates, so that no request waits for that; it takes some tenths of a second."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def author(self, request: Request) -> RequestAuthor:
        state = request.scope["state"]
        return RequestAuthor(caller=state[CALLER], request_id=state[REQUEST_ID])

    def may_act(self, request: Request) -> bool:
        return not self.is_read_only and self.author(request).caller.role is AccessRole.OPERATOR

    async def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:  # noqa: ANN401
        """Return a page; its template gets `values`, and what every page has."""
        caller = self.author(request).caller
        path = request.scope["path"]
        done = request.query_params.get("done", "")
        self.context.live.touch()
        common = {"caller": caller, "path": path, "done": done, "may_act": self.may_act(request)}
        common["has_session"] = COOKIE in request.cookies and caller.name not in {NOBODY.name, ANYONE.name}
        rendered = self._generate(template, theme=theme_of(request.cookies), **common, **values)
        accepts = request.headers.get("accept-encoding", "")
        return await page_response(rendered, status, accepts, Slices(self.context.clock))

    async def part(
        self, key: Hashable, template: str, values: Callable[[], Coroutine[Any, Any, dict[str, Any]]]
    ) -> Markup:
        """Return a part of a page that is the same for everyone who names the same key; it is rendered once.

        The key holds all that the part depends on: the mirror's revision, the second, the query, and who may act.
        """

        async def make() -> Markup:
            given = await values()
            rendered = self._generate(template, caller=None, path="", **given)
            return Markup(await rendered_text(rendered, Slices(self.context.clock)))  # noqa: S704  the templates escape

        return await self._parts.of((template, key), make)

    def macro(self, template: str, name: str) -> Callable[..., Markup]:
        """Return a macro, to be called for one row at a time."""
        return getattr(self._templates.get_template(template).module, name)

    def render(self, template: str, *, caller: Caller | None, path: str, **values: Any) -> str:  # noqa: ANN401
        """Return a page as text, in one step: for small ones."""
        return "".join(self._generate(template, caller=caller, path=path, **values))

    def _generate(self, template: str, *, caller: Caller | None, path: str, **values: Any) -> Iterator[str]:  # noqa: ANN401
        now: datetime = values.pop("now", None) or self.context.clock.now()
        zone = values.pop("zone", UTC)
        common: dict[str, Any] = {
            "NAVIGATION": NAVIGATION,
            "installation": self.installation,
            "DONE": DONE,
            "done": "",
            "links": self.links,
            "static": self.static,
            "status_badge": status_badge,
            "caller": caller,
            "path": path,
            "now": now,
            "zone": zone,
            "clock": partial(clock_text, now=now, zone=zone),
            "can_sign_in": self.sessions is not None and (caller is None or caller.role is not AccessRole.OPERATOR),
            "has_session": False,
            "refresh_s": None,
            "may_act": False,
            "THEMES": THEMES,
            "theme": THEMES[0],
            "live_part": None,
            "banners": banners(self.context.live, now),
            "as_of": self.context.live.as_of or now,
            "news_id": self.context.live.fanout.page_id,
        }
        return self._templates.get_template(template).generate({**common, **values})


@cache
def _environment() -> Environment:
    """Return the templates, compiled once for all consoles of a process."""
    templates = Environment(
        loader=PackageLoader("worker.web.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=plain,
        auto_reload=False,  # templates are part of the installation: nothing looks at their files again
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = templates.filters
    filters |= {"moment": moment_text, "prose": _prose}
    templates.tests["unnamed"] = _is_unnamed
    return templates


def _is_unnamed(value: str) -> bool:
    return value in UNNAMED


@pass_context
def _prose(page: Context, text: object, zone: tzinfo | None = None, near: datetime | None = None) -> Markup:
    """Return a sentence with its times, which were written in the page's zone unless another is given."""
    return prose(text, zone or page["zone"], near)
