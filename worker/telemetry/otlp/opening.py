"""Opens the exporters that the settings ask for; what cannot be used is logged, and the rest is sent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from worker.core.errors import ConfigError
from worker.runtime.logs import logger
from worker.telemetry.meters import Meters
from worker.telemetry.otlp.export import (
    LibraryWarnings,
    OtlpMetrics,
    OtlpSpans,
    exporter_of,
    resource_of,
    secrets_in,
)
from worker.telemetry.reporting import Report
from worker.telemetry.traces import SendSpans

_log = logger()


@dataclass(frozen=True, slots=True)
class OpenedCollector:
    """OpenedCollector sends to a collector: metrics, spans, or one of both."""

    report: Report | None
    send_spans: SendSpans | None
    close: Callable[[], None]


def open_collector(
    meters: Meters,
    now: datetime,
    *,
    service: str,
    traces: str,
    metrics: str,
    is_delta: bool,
    headers: Iterable[str],
    endpoints: Iterable[str],
) -> OpenedCollector:
    """Open the exporters. `traces` and `metrics` are protocols; "" means that the signal is not sent."""
    warnings = LibraryWarnings(secrets_in(headers, endpoints))
    warnings.listen()
    resource = resource_of(service)
    spans_exporter, metrics_exporter = _exporter("trace", traces, warnings), _exporter("metric", metrics, warnings)
    spans = None if spans_exporter is None else OtlpSpans(resource, spans_exporter, warnings)
    totals = (
        None
        if metrics_exporter is None
        else OtlpMetrics(meters, resource, now, metrics_exporter, warnings, is_delta=is_delta)
    )
    if said := warnings.taken():  # about a variable that the SDK cannot use
        _log.warning("telemetry.warned", reason=said)

    def close() -> None:
        for each in (spans, totals):
            if each is not None:
                each.close()

    return OpenedCollector(totals and totals.report, spans and spans.send, close)


def _exporter(signal: str, protocol: str, warnings: LibraryWarnings) -> Any:  # noqa: ANN401 - as `exporter_of`
    if not protocol:
        return None
    try:
        return exporter_of(signal, protocol)()
    except ConfigError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - of a library, for a variable it cannot read: no reason not to work
        reason = f"{type(error).__name__}: {warnings.hidden(str(error))}"
    _log.error("telemetry.unavailable", signal=signal, reason=reason)
    return None
