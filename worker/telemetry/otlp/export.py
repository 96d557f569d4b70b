"""Send metrics and spans with the exporters of OpenTelemetry's SDK, which read its variables.

Nothing here reaches the engine: an exporter blocks a thread of its own for a bounded time, and a failure is a
`RetryLater` for the reporter. No log line shows a header or an address.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from worker.core.errors import ConfigError, RetryLater
from worker.runtime.daemon_calls import in_daemon_thread
from worker.runtime.logs import REDACTED, redacted_text
from worker.telemetry.meters import Meters
from worker.telemetry.otlp.metrics import ReportedTotals, report_of
from worker.telemetry.otlp.spans import SpanMaker
from worker.telemetry.traces import Traced

# By the value of OTEL_EXPORTER_OTLP_PROTOCOL: where the exporters are, and the extra that installs them.
PROTOCOLS: Final = {
    "http/protobuf": ("opentelemetry.exporter.otlp.proto.http", "otel"),
    "grpc": ("opentelemetry.exporter.otlp.proto.grpc", "otel-grpc"),
}
_TEXT_MIN: Final = 4  # shorter texts are no secrets, and hiding them would garble every reason


def resource_of(service: str) -> Resource:
    """Return what this process is called. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME win."""
    # By host and process: two workers of one service would otherwise overwrite each other's values.
    instance = f"{socket.gethostname()}-{os.getpid()}"
    own = Resource.create(
        {"service.name": service, "service.version": version("interlock"), "service.instance.id": instance}
    )
    return own.merge(OTELResourceDetector().detect())


class LibraryWarnings(logging.Handler):
    """Keeps the warnings of the SDK in each thread, without secrets, in place of its log lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__(logging.WARNING)
        # The longest first: one may be part of another.
        self._secrets = sorted({each for each in secrets if len(each) >= _TEXT_MIN}, key=len, reverse=True)
        self._of_thread = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        # The first says what happened, and the last what became of it.
        first: str = getattr(self._of_thread, "first", "") or self.hidden(record.getMessage())
        last = self.hidden(record.getMessage())
        self._of_thread.first, self._of_thread.text = first, first if first == last else f"{first} {last}"

    def hidden(self, text: str) -> str:
        for each in self._secrets:
            text = text.replace(each, REDACTED)
        return redacted_text(text)

    def taken(self) -> str:
        text: str = getattr(self._of_thread, "text", "")
        self._of_thread.first = self._of_thread.text = ""
        return text

    def listen(self) -> None:
        """Take the warnings of the SDK, and keep them from the log."""
        library = logging.getLogger("opentelemetry")
        for each in [each for each in library.handlers if isinstance(each, LibraryWarnings)]:
            library.removeHandler(each)
        library.addHandler(self)
        library.propagate = False


def secrets_in(headers: Iterable[str], endpoints: Iterable[str]) -> set[str]:
    """Return the parts of these variables that no log line may show."""
    found: set[str] = set()
    for text in headers:
        found.add(text)
        for pair in text.split(","):
            value = pair.partition("=")[2].strip()
            found |= {pair.strip(), value, unquote(value)}
    for text in endpoints:
        try:
            parts = urlsplit(text)
        except ValueError:
            found.add(text)
            continue
        found |= {parts.username or "", parts.password or "", parts.query, parts.path.rstrip("/")}
    return found - {"", "/v1/traces", "/v1/metrics"}


def exporter_of(signal: str, protocol: str) -> Any:  # noqa: ANN401 - a class of one of several libraries
    """Return the class of the exporter of a signal. Raises `ConfigError` if it is not installed."""
    name = "OTLPSpanExporter" if signal == "trace" else "OTLPMetricExporter"
    if protocol not in PROTOCOLS:
        raise ConfigError(f"the protocol {protocol!r} is not supported; use http/protobuf or grpc")
    package, extra = PROTOCOLS[protocol]
    try:
        return getattr(import_module(f"{package}.{signal}_exporter"), name)
    except ImportError as error:
        raise ConfigError(f"the exporter for {protocol} is not installed; install interlock[{extra}]") from error


class OneCall:
    """Calls an exporter in a thread of its own; never twice at once, so that a hung one costs one thread."""

    def __init__(self, name: str, warnings: LibraryWarnings) -> None:
        self._name, self._warnings = name, warnings
        self._is_under_way = False

    async def __call__(self, export: Callable[[], bool]) -> None:
        """Raise `RetryLater` if `export` does not return True."""
        if self._is_under_way:
            raise RetryLater("the collector has not answered the last request yet")
        self._is_under_way = True

        def call() -> tuple[bool, str]:
            try:
                return export(), self._warnings.taken()
            except Exception as error:  # noqa: BLE001 - of a library, in its thread: it must not reach the engine
                return False, self._warnings.hidden(f"{type(error).__name__}: {error}")
            finally:
                self._is_under_way = False

        is_done, said = await in_daemon_thread(call, self._name)
        if not is_done:
            raise RetryLater(said or "the collector did not accept it")


class OtlpMetrics:
    """Sends all metrics: totals, or with `is_delta` what was added since the last accepted report."""

    def __init__(
        self,
        meters: Meters,
        resource: Resource,
        began_at: datetime,
        exporter: MetricExporter,
        warnings: LibraryWarnings,
        *,
        is_delta: bool = False,
    ) -> None:
        self._meters, self._resource, self._exporter = meters, resource, exporter
        self._began = self._sent = ReportedTotals(began_at)
        self._is_delta, self._call = is_delta, OneCall("otlp-metrics", warnings)

    async def report(self, now: datetime) -> None:
        """Send all values. Raises `RetryLater` if the collector did not accept them."""
        report = report_of(self._meters, self._resource, self._began, now, since=self._sent if self._is_delta else None)
        exporter: Any = self._exporter  # its types are incomplete
        await self._call(lambda: exporter.export(report.data) is MetricExportResult.SUCCESS)
        self._sent = report.totals

    def close(self) -> None:
        self._exporter.shutdown()  # pyright: ignore[reportUnknownMemberType] - as above


class OtlpSpans:
    """Sends the spans of attempts."""

    def __init__(self, resource: Resource, exporter: SpanExporter, warnings: LibraryWarnings) -> None:
        self._maker, self._exporter, self._call = SpanMaker(resource), exporter, OneCall("otlp-traces", warnings)

    async def send(self, attempts: Sequence[Traced]) -> None:
        """Send spans in one request. Raises `RetryLater` if the collector did not accept them."""

        def export() -> bool:
            spans = self._maker.spans_of(attempts)
            return not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS

        await self._call(export)

    def close(self) -> None:
        self._exporter.shutdown()
