"""What a collector understands of OTLP: decoded by the definitions of the protocol itself."""

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

_IDS = ("traceId", "spanId", "parentSpanId")


def decoded_metrics(body: bytes) -> dict[str, Any]:
    """Return what was sent as metrics. Raises `DecodeError`."""
    return MessageToDict(ExportMetricsServiceRequest.FromString(body))


def metrics_sent(data: MetricsData) -> dict[str, Any]:
    """Return metrics by name, after a way through the protocol's bytes."""
    [resource] = decoded_metrics(encode_metrics(data).SerializeToString())["resourceMetrics"]
    return {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}


def spans_sent(spans: Sequence[ReadableSpan]) -> list[dict[str, Any]]:
    """Return spans after a way through the protocol's bytes."""
    return decoded_spans(encode_spans(spans).SerializeToString())


def decoded_spans(body: bytes) -> list[dict[str, Any]]:
    """Return the spans that were sent, with ids as hexadecimal digits. Raises `DecodeError`."""
    read = MessageToDict(ExportTraceServiceRequest.FromString(body))
    return [
        _with_hex_ids(span)
        for resource in read["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes_of(thing: Mapping[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"].get("stringValue", "") for each in thing.get("attributes", [])}


def _with_hex_ids(span: Mapping[str, Any]) -> dict[str, Any]:
    return {name: base64.b64decode(cast("str", value)).hex() if name in _IDS else value for name, value in span.items()}


@dataclass
class FakeCollector:
    """A collector on loopback that keeps what it understood, with the headers of each request."""

    status: int = 200
    spans: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    reports: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    paths: list[str] = field(default_factory=list[str])

    async def _receive(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        self.paths.append(request.path_qs)
        body = await request.read()  # already unpacked
        if self.status != 200:
            return web.Response(status=self.status)
        if "traces" in request.path:
            self.spans.extend(decoded_spans(body))
        else:
            self.reports.append(decoded_metrics(body))
        return web.Response(body=b"", content_type="application/x-protobuf")

    @asynccontextmanager
    async def on_loopback(self) -> AsyncGenerator[str]:
        """Yield its address."""
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{path:.*}", self._receive)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
