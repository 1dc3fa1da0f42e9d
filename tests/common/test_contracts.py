"""Every fact and every request as it travels: CloudEvents outside, a typed model inside, nothing lost on the way."""

from __future__ import annotations

import json
import re
import types
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

import libs.common.contracts  # noqa: F401 - registers every fact and every request
from libs.common.contracts.dead_letters import ReplayDeadLetter
from libs.common.contracts.envelope import Envelope, Fact, UnknownFact, fact_types
from libs.common.contracts.optimisation import OptimisationConfig
from libs.common.contracts.requests import (
    Caller,
    Done,
    Reply,
    ReplyMessage,
    Request,
    RequestMessage,
    request_types,
)
from libs.common.contracts.trajectories import Branch
from libs.common.errors import Invalid, from_wire

NOW = datetime(2026, 12, 1, 12, 30, 15, 123456, tzinfo=UTC)
FACTS = sorted(fact_types().values(), key=lambda kind: kind.type_name())
REQUESTS = [kind for name, kind in sorted(request_types().items()) if not name.startswith("notes.")]


TOGETHER: dict[type[BaseModel], dict[str, Any]] = {
    Branch: {"token_ids": [1, 2, 3]},
    OptimisationConfig: {"global_batch_size": 4, "n_samples_per_prompt": 2},
}
"""Fields that have to fit each other."""


def example(kind: Any, field: FieldInfo | None = None) -> Any:
    """A value of a type: the smallest that its constraints allow, with every optional part there."""
    if isinstance(kind, NewType):
        return example(kind.__supertype__, field)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return example(arguments[0], FieldInfo.from_annotation(kind))
    if origin in (Union, types.UnionType):
        return example(next(a for a in arguments if a is not types.NoneType), field)
    if origin is Literal:
        return arguments[0]
    if origin in (list, tuple):
        return [example(arguments[0])]
    if origin is dict:
        return {example(arguments[0]): example(arguments[1])}
    if isinstance(kind, TypeVar) or kind is Any:
        return "anything"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        values = {name: example(f.annotation, f) for name, f in kind.model_fields.items()}
        return kind.model_validate(values | TOGETHER.get(kind, {}))
    if kind is datetime:
        return NOW
    return _plain(kind, field)


def _plain(kind: Any, field: FieldInfo | None) -> Any:
    limits = {
        name: getattr(limit, name)
        for limit in (field.metadata if field is not None else [])
        for name in ("ge", "gt", "lt", "min_length", "pattern")
        if getattr(limit, name, None) is not None
    }
    if kind is str and "pattern" in limits:
        return next(t for t in ("0" * 64, "a" * 40, "name", "osm_abc") if re.search(limits["pattern"], t))
    if kind is str:
        return "text" + "x" * limits.get("min_length", 0)
    if kind is bool:
        return True
    if kind in (int, float):
        least = max(limits.get("ge", 1), limits.get("gt", 0) + 1)
        return kind(min(least, limits["lt"] / 2) if "lt" in limits else least)
    if kind is bytes:
        return b"bytes"
    return TypeAdapter(kind).validate_python({})


def envelope(fact: Fact) -> Envelope:
    return Envelope.wrap(
        fact, id="evt_1", source="registry", time=NOW, traceparent=f"00-{'a' * 32}-{'b' * 16}-01"
    )


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.type_name())
def test_a_fact_comes_out_of_its_envelope_as_it_went_in(kind: type[Fact]):
    fact = example(kind)
    wire = envelope(fact).model_dump_json()
    opened = Envelope.model_validate_json(wire).fact()
    assert type(opened) is kind
    assert opened == fact


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.type_name())
def test_an_envelope_is_a_cloud_event(kind: type[Fact]):
    event = json.loads(envelope(example(kind)).model_dump_json())
    assert event["specversion"] == "1.0"
    assert re.fullmatch(r"osmosis\.[a-z_]+\.[a-z_]+\.v\d+", event["type"])
    assert event["source"] == "/osmosis/registry"
    assert event["datacontenttype"] == "application/json"
    assert datetime.fromisoformat(event["time"]) == NOW
    assert event["subject"] == event["data"][kind.SUBJECT_FIELD] != ""
    assert event["workspaceid"] == event["data"]["workspace_id"]
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in event), (
        "names of attributes (CloudEvents, 3.1)"
    )
    assert all(value is None or isinstance(value, str | dict) for value in event.values())


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.type_name())
def test_a_field_that_a_newer_peer_adds_is_ignored(kind: type[Fact]):
    fact = example(kind)
    newer = envelope(fact)
    newer = newer.model_copy(update={"data": {**newer.data, "added_later": {"a": [1]}}})
    wire = json.loads(newer.model_dump_json()) | {"addedlater": "x"}
    assert Envelope.model_validate_json(json.dumps(wire)).fact() == fact


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.type_name())
def test_a_fact_has_a_routing_key_of_its_own_and_cannot_be_changed(kind: type[Fact]):
    assert envelope(example(kind)).routing_key == kind.KEY
    with pytest.raises(ValueError, match="frozen"):
        example(kind).workspace_id = "ws_2"


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: f"{kind.SERVICE}.{kind.NAME}")
def test_a_request_and_its_reply_come_out_as_they_went_in(kind: type[Request[Any]]):
    request, reply = example(kind), example(kind.REPLY)
    message = RequestMessage(
        id="req_1",
        name=f"{kind.SERVICE}.{kind.NAME}",
        caller=Caller(kind="root"),
        deadline=NOW,
        data=request.model_dump(mode="json"),
    )
    assert kind.model_validate(RequestMessage.model_validate_json(message.model_dump_json()).data) == request
    answer = ReplyMessage.model_validate_json(ReplyMessage.of(message, reply).model_dump_json())
    assert answer.open(kind.REPLY) == reply


def test_a_type_that_this_version_does_not_know_says_so():
    newer = envelope(example(FACTS[0])).model_copy(update={"type": "osmosis.run.queued.v99"})
    assert newer.routing_key == "run.queued"
    with pytest.raises(UnknownFact, match=r"run\.queued\.v99"):
        newer.fact()


def test_two_facts_of_one_name_are_refused_where_they_are_defined():
    with pytest.raises(TypeError, match=r"osmosis\.run\.queued\.v1 is registered twice"):

        class Again(Fact, key="run.queued", subject="workspace_id"):  # pyright: ignore[reportUnusedClass]
            pass


def test_an_error_travels_with_its_fields_and_an_unknown_one_is_unavailable():
    error = Invalid("wrong")
    assert from_wire(error.to_wire()).to_wire() == error.to_wire()
    newer = from_wire({"code": "teapot", "message": "short and stout"})
    assert (newer.code, newer.message) == ("unavailable", "short and stout")


def test_commands_are_told_from_questions():
    assert ReplayDeadLetter.COMMAND
    assert ReplayDeadLetter.REPLY is Done
    assert all(issubclass(kind.REPLY, Reply) and kind.SERVICE for kind in REQUESTS)
