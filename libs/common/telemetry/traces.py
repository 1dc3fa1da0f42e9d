"""OpenTelemetry traces that continue across the bus: the `traceparent` of W3C Trace Context rides in every message."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = trace.get_tracer("osmosis")
FLUSH_MS = 2000


def configure_tracing(service: str, otlp_endpoint: str | None) -> None:
    """Give every span an id, and send spans to an OTLP/HTTP collector where one is named."""
    provider = TracerProvider(resource=Resource.create({"service.name": f"osmosis-{service}"}))
    if otlp_endpoint:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_endpoint)))
    trace.set_tracer_provider(provider)


def flush_traces() -> None:
    """Send what is left, for a process that is about to end without tidying up."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.force_flush(FLUSH_MS)


def current_traceparent() -> str | None:
    """The traceparent of the span under way, None outside of one."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def span(
    name: str, *, traceparent: str | None = None, kind: SpanKind = SpanKind.INTERNAL, **attributes: str
) -> Generator[None]:
    """Work inside a span that continues the trace of `traceparent` (or the one under way)."""
    parent = _PROPAGATOR.extract({"traceparent": traceparent}) if traceparent else context.get_current()
    with _TRACER.start_as_current_span(name, context=parent, kind=kind, attributes=attributes):
        yield
