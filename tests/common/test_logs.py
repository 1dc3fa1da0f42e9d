"""Logs: one chain for ours and those of libraries, on stderr, with the trace's ids and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from libs.common.telemetry.logs import MASK, configure_logging, redact, redact_text
from libs.common.telemetry.traces import configure_tracing, current_traceparent, span

SECRETS = {
    "ours": "osm_live_Zx81kQ0aLmN2",
    "Hugging Face": "hf_AbCdEfGhIjKlMn",
    "provider": "sk-proj-abc123DEF456",
    "GitHub": "ghp_abcdefgh12345678",
    "GitHub, fine-grained": "github_pat_11ABCDEFG_abcdef",
    "GitLab": "glpat-abcdefgh12345678",
    "webhook": "whsec_MfKQ9r8GKYqrTwjU",
    "Amazon": "AKIAIOSFODNN7EXAMPLE",
    "web token": "eyJhbGciOi.eyJzdWIiOiIx.c2lnbmF0dXJl",
}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("text", ["{}", "with {} inside", "x={}&y=1", '{{"a": "{}"}}', "({})"])
def test_what_looks_like_a_secret_is_masked_in_any_text(secret: str, text: str) -> None:
    shown = redact_text(text.format(secret))
    assert secret not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {MASK}"),
        ("authorization: bearer abcdef123", f"authorization: bearer {MASK}"),
        ("Basic dXNlcjpwYXNz", f"Basic {MASK}"),
        ("amqp://osmosis:hunter2@broker:5672/", f"amqp://{MASK}@broker:5672/"),
        ("postgresql+asyncpg://u:p@ss:w@rd@db/x", f"postgresql+asyncpg://{MASK}@db/x"),
        ("https://:hunter2@host/", f"https://{MASK}@host/"),
        ("redis://u:p@one,redis://u:q@two", f"redis://{MASK}@one,redis://{MASK}@two"),
        ("GET /x?token=hunter2&page=2", f"GET /x?token={MASK}&page=2"),
        ('{"password": "hunter2", "user": "u"}', f'{{"password": "{MASK}", "user": "u"}}'),
        ("{'api_key': 'hunter2'}", f"{{'api_key': '{MASK}'}}"),
        ("OSMOSIS_ATTEMPT_TOKEN=hunter2 python", f"OSMOSIS_ATTEMPT_TOKEN={MASK} python"),
    ],
)
def test_a_secret_is_masked_where_its_surroundings_give_it_away(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "runs/run_01/order.json",
        "the task-scheduler and the disk-pressure-monitor",
        "https://example.org/a:b/c",
        "http://127.0.0.1:8700/v1/runs",
        "max_tokens=16 prompt_tokens: 12",
        "half_finished of_everything",
        "reached 12@34",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "api_key",
        "apiKey",
        "X-Api-Key",
        "token",
        "HF_TOKEN",
        "hf.token",
        "secret",
        "secrets",
        "password",
        "Authorization",
        "secret_key",
        "secretKey",
        "cookie",
        "Set-Cookie",
        "credentials",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_text_under_a_telling_name_is_masked_however_deep(name: str) -> None:
    shown = redact({"a": [{name: "plain words"}], name: {"inner": ["plain words"], "count": 3}})
    assert "plain words" not in json.dumps(shown)
    assert shown[name]["count"] == 3


@pytest.mark.parametrize(
    "name", ["idempotency_key", "routing_key", "monkey", "tokenizer", "keys_seen", "secretary"]
)
def test_text_under_a_harmless_name_is_shown(name: str) -> None:
    assert redact({name: "plain words"}) == {name: "plain words"}


def test_numbers_are_shown_under_any_name() -> None:
    value = {"tokens": [1, 2, 3], "token": 5, "key": None, "secret": True}
    assert redact(value) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just("hf_AbCdEfGhIjKlMn"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=12,
    )
)
def test_no_shape_hides_a_secret(value: Any) -> None:
    assert "hf_AbCdEfGhIjKlMn" not in json.dumps(redact(value))


def test_a_line_is_json_with_service_level_logger_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("registry", "INFO", "json")
    structlog.get_logger("some.module").info("it happened", run="run_1", password="hunter2")
    structlog.get_logger("some.module").debug("too small")
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "it happened",
        "run": "run_1",
        "password": MASK,
        "service": "registry",
        "level": "info",
        "logger": "some.module",
    }


def test_logs_of_libraries_go_through_the_same_chain(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("registry", "INFO", "json")
    logging.getLogger("a.library").warning("connecting to %s", "amqp://u:hunter2@host/", extra={"token": "x"})
    (line,) = lines(capsys)
    assert line["event"] == f"connecting to amqp://{MASK}@host/"
    assert (line["service"], line["level"], line["logger"]) == ("registry", "warning", "a.library")
    assert line["token"] == MASK


@pytest.mark.parametrize("source", ["ours", "a library's"])
def test_tracebacks_are_kept_and_show_no_secret(capsys: pytest.CaptureFixture[str], source: str) -> None:
    configure_logging("registry", "INFO", "json")
    try:
        raise ValueError("no such key: hf_AbCdEfGhIjKlMn")
    except ValueError:
        if source == "ours":
            structlog.get_logger("x").exception("it failed")
        else:
            logging.getLogger("x").exception("it failed")
    (line,) = lines(capsys)
    assert "Traceback" in line["exception"]
    assert "test_logs.py" in line["exception"]
    assert "hf_AbCdEfGhIjKlMn" not in json.dumps(line)
    assert MASK in line["exception"]


def test_an_exception_that_is_passed_as_a_value_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("registry", "INFO", "json")
    structlog.get_logger("x").warning(
        "it failed", error=ValueError("sk-proj-abc123DEF456"), body=b"hf_AbCdEfGhIj"
    )
    (line,) = lines(capsys)
    assert line["error"] == MASK
    assert line["body"] == f"b'{MASK}'"


def test_a_line_inside_a_span_names_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configure_tracing("registry", None)
    configure_logging("registry", "INFO", "json")
    with span("work"):
        structlog.get_logger("x").info("inside")
        traceparent = current_traceparent()
    structlog.get_logger("x").info("outside")
    inside, outside = lines(capsys)
    assert traceparent is not None
    assert traceparent.startswith(f"00-{inside['trace_id']}-{inside['span_id']}-")
    assert "trace_id" not in outside


def test_the_readable_form_shows_no_secret_either(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("registry", "INFO", "console")
    try:
        raise ValueError("hf_AbCdEfGhIjKlMn")
    except ValueError:
        structlog.get_logger("x").exception("it failed", api_key="hunter2")
    text = capsys.readouterr().err
    assert "it failed" in text
    assert "Traceback" in text
    assert "hunter2" not in text
    assert "hf_AbCdEfGhIjKlMn" not in text
