"""A real worker sends the trace of a run that failed once; its job knows its parent span."""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from tests.support.otlp import FakeCollector
from tests.support.worlds.live_worker import live_worker
from tests.support.worlds.observer import Onlooker, last_days, wait_until
from worker.core.run.state import Outcome
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables

PATIENCE_S: Final = 100.0

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

# The first attempt fails; each says its trace context.
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: ready, check: exists}
job:
  type: command
  maxRetries: 1
  config: {command: [sh, -c, "echo $TRACEPARENT >> contexts; test $INTERLOCK_ATTEMPT = 2"]}
  pollIntervalSeconds: 1
"""


async def test_the_trace_of_a_run_reaches_a_collector(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(CONFIG)
    tables, [key] = SqliteTables(tmp_path / "interlock.db", SystemClock()), last_days(1)
    variables = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=data%20team", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    collector = FakeCollector()
    async with collector.on_loopback() as address:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        with live_worker(tmp_path, "--pipelines", "pipelines", **variables) as worker:
            await tables.start()
            try:
                outside = Onlooker(tables=tables)
                await outside.say_ready([key])

                async def has_succeeded() -> bool:
                    return any(run.outcome is Outcome.SUCCEEDED for run in await outside.runs([key]))

                async def is_sent() -> bool:
                    await asyncio.sleep(0)
                    return len(collector.spans) >= 8

                await wait_until(has_succeeded, within_s=PATIENCE_S, workers=[worker])
                await wait_until(is_sent, within_s=PATIENCE_S, workers=[worker])
            finally:
                await tables.stop()

    spans = collector.spans
    jobs = [span for span in spans if span["name"] == "job"]
    starts = [span for span in spans if span["name"] == "start"]
    contexts = (tmp_path / "contexts").read_text().split()

    assert [f"00-{span['traceId']}-{span['spanId']}-01" for span in jobs] == contexts
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if '"fact.handled"' in line]
    assert {line["trace_id"] for line in lines if line["run_id"]} == {span["traceId"] for span in spans}
    assert len({span["traceId"] for span in spans}) == 1
    assert [span["parentSpanId"] for span in starts] == [span["parentSpanId"] for span in jobs]
    assert [span["endTimeUnixNano"] for span in starts] == [span["startTimeUnixNano"] for span in jobs]
    assert [span.get("status", {}).get("code", "") for span in jobs] == ["STATUS_CODE_ERROR", ""]
    assert {each["x-tenant"] for each in collector.headers} == {"data team"}
    assert {each["Content-Encoding"] for each in collector.headers} == {"gzip"}
    assert not worker.has_logged("data team")
