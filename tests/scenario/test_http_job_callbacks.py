"""HTTP jobs that report their own end to a real worker: seen at once, once only, and covered by the poll if lost."""

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.builders import command_line
from tests.support.worlds import live_worker as liveworker
from tests.support.worlds.live_worker import LiveWorker, live_worker, today, until
from worker.runtime.clock import SystemClock

# As in `test_store_outages`.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

PIPELINE = """
pipeline: {{id: {name}, owner: tests}}
schedule:
  trigger: {{key: landed, check: exists}}
  evaluation: {{window: 1h, interval: 1m}}
validation:
  rules: [{{key: landed, check: exists}}]
job:
  type: http
  pollIntervalSeconds: {every}
  config:
    url: http://127.0.0.1:{port}/{name}/start
    body: {{day: "${{DATE}}", report: "${{CALLBACK_URL}}"}}
    callback: true
    statusUrl: http://127.0.0.1:{port}/{name}/status/{{id}}
"""
NAMES = {"reporter": 3600, "silent": 3600, "lost": 1}
DONE = {"outcome": "succeeded", "outputs": {"rows": 7}}
DAYS = 3


class JobHost(ThreadingHTTPServer):
    """A server that runs jobs. Those of `reporter` report their end; those of `lost` end, but their report is lost."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _JobRequests)
        self.addresses: dict[tuple[str, str], str] = {}  # by job and day: where to report
        self.polls: Counter[str] = Counter()
        self.accepted: list[bool] = []

    def start_job(self, name: str, body: dict[str, str]) -> None:
        self.addresses[name, body["day"]] = body["report"]
        if name == "reporter":
            Thread(target=self._work, args=(body["report"],), daemon=True).start()

    def _work(self, address: str) -> None:
        _, answer = report(address)
        self.accepted.append(answer["accepted"])


class _JobRequests(BaseHTTPRequestHandler):
    server: JobHost  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.start_job(self.path.split("/")[1], body)
        self._answer(202, {"state": "accepted"})

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        self.server.polls[name] += 1
        is_done = name == "lost" and self.server.polls[name] > 1
        self._answer(200, {"status": "done" if is_done else "running"})

    def _answer(self, status: int, content: dict[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        pass


@contextmanager
def a_job_host() -> Generator[JobHost]:
    with JobHost() as host:
        Thread(target=host.serve_forever, daemon=True).start()
        yield host
        host.shutdown()


def report(address: str, content: object = DONE) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


class Api:
    """What the worker's own API says."""

    def __init__(self, worker: LiveWorker) -> None:
        lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
        [served] = [line for line in lines if line["event"] == "web.served"]
        self._base = f"http://{served['host']}:{served['port']}/api/v1"

    def read(self, path: str) -> Any:  # noqa: ANN401  any JSON
        with urllib.request.urlopen(f"{self._base}{path}", timeout=30) as answer:
            return json.load(answer)

    def run(self, name: str, day: str) -> dict[str, Any]:
        return self.read(f"/runs/{name}/stream/{day}")

    def history(self, name: str, day: str) -> list[dict[str, Any]]:
        return self.read(f"/runs/{name}/stream/{day}/history")["items"]

    def status(self, name: str, day: str) -> str:
        try:
            return self.run(name, day)["status"]
        except urllib.error.HTTPError:
            return ""


@contextmanager
def a_worker_with_jobs(at: Path, host: JobHost) -> Generator[tuple[LiveWorker, Api]]:
    made = command_line.interlock("store", "init", "--store", f"sqlite:///{at / 'interlock.db'}", clock=SystemClock())
    assert made.exit_code == 0
    (at / "pipelines").mkdir()
    for name, every in NAMES.items():
        text = PIPELINE.format(name=name, every=every, port=host.server_port)
        (at / "pipelines" / f"{name}.yaml").write_text(text)
    settings = {"INTERLOCK_WEB": "127.0.0.1:0", "INTERLOCK_HTTP_ALLOW": "127.0.0.1"}
    with live_worker(at, "--pipelines", "pipelines", **settings) as worker:
        yield worker, Api(worker)
        assert worker.stop() == 0


def put(name: str, day: str, at: Path) -> None:
    liveworker.interlock("sensor", "put", name, "landed", "rows=1", "--period", day, at=at)


def test_http_jobs_report_their_own_end_over_http(tmp_path: Path) -> None:
    days = [today(days_ago=number) for number in range(DAYS)]
    with a_job_host() as host, a_worker_with_jobs(tmp_path, host) as (worker, api):
        for day in days:
            put("reporter", day, tmp_path)
        put("silent", today(), tmp_path)
        put("lost", today(), tmp_path)

        for day in days:
            until(lambda day=day: api.status("reporter", day) == "completed", worker)
        _they_were_seen_within_a_second(api, host, days)
        _forged_and_repeated_reports_change_nothing(api, host, worker)
        _the_poll_covered_the_lost_report(api, host, worker)


def _they_were_seen_within_a_second(api: Api, host: JobHost, days: list[str]) -> None:
    took: list[timedelta] = []
    for day in days:
        run = api.run("reporter", day)
        reported = next(line for line in api.history("reporter", day) if line["what"] == "success")
        assert run["outputs"] == {"result": {"rows": 7}}
        took.append(datetime.fromisoformat(run["endedAt"]) - datetime.fromisoformat(reported["at"]))
    assert host.accepted == [True] * DAYS
    assert host.polls["reporter"] <= DAYS  # one right after the start of each job; the next would come in an hour
    assert min(took) < timedelta(seconds=1), took  # the others may have met a moment without a core


def _forged_and_repeated_reports_change_nothing(api: Api, host: JobHost, worker: LiveWorker) -> None:
    until(lambda: api.status("silent", today()) == "running", worker)
    address = host.addresses["silent", today()]
    base, token, _ = address.rsplit("/", 2)
    claim, _, signature = token.partition(".")
    other = host.addresses["reporter", today()].rsplit("/", 2)[1].partition(".")[2]
    before = api.run("silent", today()), api.history("silent", today())

    forged = [f"{claim}.{signature[::-1]}", f"{claim}.{other}", claim, f"{token}A", "%2e%2e"]
    assert [report(f"{base}/{each}/ended")[0] for each in forged] == [401] * len(forged)
    assert (api.run("silent", today()), api.history("silent", today())) == before

    assert report(address)[1]["accepted"] is True
    until(lambda: api.status("silent", today()) == "completed", worker)
    before = api.run("silent", today()), api.history("silent", today())
    assert report(address)[1]["accepted"] is False
    assert report(address, {"outcome": "failed", "message": "no"})[1]["accepted"] is False
    assert (api.run("silent", today()), api.history("silent", today())) == before


def _the_poll_covered_the_lost_report(api: Api, host: JobHost, worker: LiveWorker) -> None:
    until(lambda: api.status("lost", today()) == "completed", worker)
    assert host.polls["lost"] > 1
    before = api.run("lost", today()), api.history("lost", today())

    assert report(host.addresses["lost", today()])[1]["accepted"] is False  # it arrives after all

    assert (api.run("lost", today()), api.history("lost", today())) == before
