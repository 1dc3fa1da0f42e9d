"""Structured logs on stderr, one JSON object a line (or readable text), with the trace's ids and without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, cast

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

MASK = "[secret]"
_SECRET_NAMES = re.compile(
    r"(^|_)(api_?key|key|token|secret|password|passwd|authorization|credential|cookie)s?$", re.IGNORECASE
)
_HARMLESS_NAMES = frozenset({"idempotency_key", "routing_key", "blob_key", "metric_key"})
_SECRET_TEXTS = re.compile(
    r"osm_[A-Za-z0-9_-]{8,}"
    r"|hf_[A-Za-z0-9]{8,}"
    r"|sk-[A-Za-z0-9_-]{8,}"
    r"|gh[opsu]_[A-Za-z0-9]{8,}"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"
)


def redact(value: Any, name: str = "") -> Any:
    """The value without secrets: those under a telling name, and those that look like one in any text."""
    if name not in _HARMLESS_NAMES and _SECRET_NAMES.search(name) and isinstance(value, str | bytes):
        return MASK
    if isinstance(value, str):
        return _SECRET_TEXTS.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: redact(item, str(key)) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in cast("list[Any]", value)]
    if isinstance(value, int | float | bool) or value is None:
        return value
    return _SECRET_TEXTS.sub(MASK, str(value))


def _redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: redact(value, key) for key, value in event.items() if not key.startswith("_")} | {
        key: value for key, value in event.items() if key.startswith("_")
    }


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = format(context.trace_id, "032x")
        event["span_id"] = format(context.span_id, "016x")
    return event


def configure_logging(service: str, level: str, format: Literal["json", "console"]) -> None:
    """Send the logs of this process, ours and those of libraries, through one chain."""

    def _add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_service,
        _add_trace,
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    rendered: Processor = (
        structlog.processors.JSONRenderer()
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, rendered],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("aiormq", "aio_pika", "botocore", "boto3", "httpx", "httpcore", "urllib3", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
