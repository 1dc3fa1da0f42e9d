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
    r"(^|[_.\-])(api[_-]?key|(access|private|secret|root|signing)[_-]?key|key|token|secret|password|passwd|pwd"
    r"|passphrase|authorization|credential|cookie|dsn)s?$",
    re.IGNORECASE,
)
_CAMEL_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HARMLESS_NAMES = frozenset({"idempotency_key", "routing_key", "blob_key", "metric_key"})
_SECRET_TEXTS = re.compile(
    # Keys by the prefixes that their makers gave them: ours, Hugging Face, model providers, GitHub, GitLab, Amazon.
    r"(?<![A-Za-z0-9])(osm_[A-Za-z0-9_-]{8,}|hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[oprsu]_[A-Za-z0-9]{8,}"
    r"|github_pat_[A-Za-z0-9_]{8,}|glpat-[A-Za-z0-9_-]{8,}|whsec_[A-Za-z0-9+/=_-]{8,}|A[KS]IA[A-Z0-9]{12,})"
    # A JSON web token.
    r"|(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    # What stands before the @ of an address, up to its last @: passwords are not always encoded as they should be.
    r"|(?<=://)[^\s/:@]*:[^\s/]*(?=@)"
)
_SCHEMES = re.compile(r"\b(bearer|basic)(\s+)(?!\[secret\])[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_ASSIGNMENTS = re.compile(
    r"((?:token|secret|password|passwd|pwd|passphrase|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"[\"']?\s*[=:]\s*[\"']?)(?!\[secret\])([^\s\"',;&{}\[\]()]+)",
    re.IGNORECASE,
)


def redact(value: Any, name: str = "") -> Any:
    """The value without secrets: all text under a telling name, and what looks like a secret in any text.

    Numbers stay under any name: a count of tokens is no token.
    """
    if isinstance(value, int | float | bool) or value is None:
        return value
    secret = name not in _HARMLESS_NAMES and _SECRET_NAMES.search(_CAMEL_BORDER.sub("_", name)) is not None
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {redact_text(str(key)): redact(item, name if secret else str(key)) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, name if secret else "") for item in cast("list[Any]", value)]
    return MASK if secret else redact_text(str(value))


def redact_text(text: str) -> str:
    """The text without what looks like a secret."""
    text = _SECRET_TEXTS.sub(MASK, text)
    text = _SCHEMES.sub(rf"\1\2{MASK}", text)
    return _ASSIGNMENTS.sub(rf"\1{MASK}", text)


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
