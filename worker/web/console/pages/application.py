"""The console as one application: its pages and static files, next to the API."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Scope as RoutedScope

from worker.web.access import SIGN_IN, SIGN_OUT
from worker.web.asgi import Receive, Scope, Send, WebApp
from worker.web.console.action_pages import pipeline_action_page, run_action_page
from worker.web.console.alerts_page import alerts_page
from worker.web.console.console import Console
from worker.web.console.deadletters_page import deadletters_page
from worker.web.console.events_page import events_page
from worker.web.console.lineage_page import lineage_page
from worker.web.console.overview_page import banners_fragment, overview_fragment, overview_page
from worker.web.console.pages.bulk_pages import bulk_page, bulk_rerun_page
from worker.web.console.pages.deadletter_pages import (
    deadletter_action_page,
    deadletter_page,
    source_replay_page,
)
from worker.web.console.pages.job_log_page import job_log_fragment, job_log_page
from worker.web.console.pages.runs_page import runs_page
from worker.web.console.pipeline_page import pipeline_page
from worker.web.console.pipelines_page import pipelines_fragment, pipelines_page
from worker.web.console.problem_pages import API
from worker.web.console.run_page import run_page
from worker.web.console.sign_in import sign_in, sign_out
from worker.web.console.theme_page import choose_theme
from worker.web.console.timeline_page import timeline_fragment, timeline_page
from worker.web.console.workers_page import workers_page
from worker.web.problems import ProblemType, WebProblem

ConsolePage: TypeAlias = Callable[[Console, Request], Awaitable[Response]]

# The shapes of paths are a contract: alerts and people keep links.
PAGES: Final[dict[str, ConsolePage]] = {
    "/": overview_page,
    "/pipelines": pipelines_page,
    "/pipelines/{pipeline}": pipeline_page,
    "/runs": runs_page,
    "/bulk/{bulk}": bulk_page,
    "/timeline": timeline_page,
    "/events": events_page,
    "/deadletters": deadletters_page,
    "/deadletters/{source}": deadletters_page,
    "/workers": workers_page,
    "/alerts": alerts_page,
    "/lineage/{pipeline}": lineage_page,
    "/theme": choose_theme,
    "/runs/{pipeline}/{schedule}/{period}": run_page,
    "/runs/{pipeline}/{schedule}/{period}/log": job_log_page,
}

# Parts of pages, which live updates fetch again.
FRAGMENTS: Final[dict[str, ConsolePage]] = {
    "/frag/banners": banners_fragment,
    "/frag/log/{pipeline}/{schedule}/{period}": job_log_fragment,
    "/frag/overview": overview_fragment,
    "/frag/pipelines": pipelines_fragment,
    "/frag/timeline": timeline_fragment,
}

FORMS: Final[dict[str, ConsolePage]] = {
    SIGN_IN: sign_in,
    "/deadletters/{source}/replay": source_replay_page,
    "/deadletters/{source}/{letter}/{action}": deadletter_action_page,
    "/pipelines/{pipeline}/{action}": pipeline_action_page,
    "/runs/rerun": bulk_rerun_page,
    "/runs/{pipeline}/{schedule}/{period}/{action}": run_action_page,
}


def make_console(console: Console) -> WebApp:
    """Return the pages as an application. What goes wrong in one is raised: the guard answers."""
    routes = [_NamedRoute(path, partial(page, console)) for path, page in PAGES.items()]
    forms = [_NamedRoute(path, partial(page, console), methods=["GET", "POST"]) for path, page in FORMS.items()]
    fragments = [_NamedRoute(path, partial(page, console)) for path, page in FRAGMENTS.items()]
    # Below the forms: the form of a source has the shape of a letter's address.
    letter = _NamedRoute("/deadletters/{source}/{letter}", partial(deadletter_page, console))
    leave = _NamedRoute(SIGN_OUT, partial(sign_out, console), methods=["POST"])
    static = _NamedRoute("/static/{version}/{name}", console.static.serve)
    return Router([*routes, *fragments, *forms, letter, leave, static], redirect_slashes=False, default=_nothing)


class _NamedRoute(Route):
    """Leaves itself in the scope, as FastAPI's routes do: what measures requests needs its template."""

    def matches(self, scope: RoutedScope) -> tuple[Match, RoutedScope]:
        match, child = super().matches(scope)
        return match, child if match is Match.NONE else {**child, "route": self}


def with_console(api: WebApp, console: WebApp) -> WebApp:
    """Return one application: the API below its own path, the console elsewhere."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (api if str(scope["path"]).startswith(API) else console)(scope, receive, send)

    return serve


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001  an ASGI application
    raise WebProblem(ProblemType.NOT_FOUND, "there is no such page")
