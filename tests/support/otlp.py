"""What a collector understands of OTLP in JSON: decoded by the definitions of the protocol itself."""

import base64
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS = ("traceId", "spanId", "parentSpanId")


def decoded_metrics(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was sent as metrics, after a way through the protocol's bytes. Raises `ParseError`."""
    sent = ParseDict(dict(body), ExportMetricsServiceRequest()).SerializeToString()
    return MessageToDict(ExportMetricsServiceRequest.FromString(sent))


def decoded_spans(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the spans that were sent, after a way through the protocol's bytes. Raises `ParseError`.

    OTLP writes ids as hexadecimal digits, where protobuf's own JSON has base64.
    """
    sent = ParseDict(_mapped(dict(body), _to_base64), ExportTraceServiceRequest()).SerializeToString()
    read = MessageToDict(ExportTraceServiceRequest.FromString(sent))
    return [
        _mapped(span, _to_hex)
        for resource in read["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def _to_base64(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()


def _to_hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _mapped(value: Any, change: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: change(each) if name in _IDS else _mapped(each, change) for name, each in members.items()}
    if isinstance(value, list):
        return [_mapped(each, change) for each in cast("list[Any]", value)]
    return value
