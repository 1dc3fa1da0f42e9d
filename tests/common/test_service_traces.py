"""A trace goes on from who asks to who answers, and from a fact that is stated to whoever handles it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libs.common.contracts.work import JobCancelled
from libs.common.identifiers import JobId
from libs.common.telemetry.traces import current_traceparent, span
from tests.common.notes import OWNER, WORKSPACE, Uow, World, WriteNote, notes_world


@pytest.fixture(params=["embedded", "distributed"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, notes_url: str) -> AsyncIterator[World]:
    async with notes_world(request.param, tmp_path, notes_url) as made:
        yield made


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Sees every span of this process."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    made = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    return made


async def test_one_trace_from_the_question_to_the_handler_of_the_fact_that_follows(
    world: World, exporter: InMemorySpanExporter
):
    async def state(request: WriteNote, uow: Uow) -> None:
        uow.emit(JobCancelled(workspace_id=WORKSPACE, job_id=JobId("job_1")))

    world.on_write = state
    exporter.clear()
    async with world.life():
        with span("a user's request"):
            began = current_traceparent()
            await world.platform.ask(WriteNote(text="x"), OWNER)
        assert await world.told(1) == ["job_1"]
    assert began is not None
    trace_id = began.split("-")[1]
    seen = {
        made.name: made
        for made in exporter.get_finished_spans()
        if made.context is not None and format(made.context.trace_id, "032x") == trace_id
    }
    chain = ["a user's request", "ask notes.write", "notes notes.write", "notes job.cancelled"]
    assert set(chain) <= set(seen)
    for parent, child in itertools.pairwise(chain):
        assert _parent(seen[child]) == _id(seen[parent]), f"{child} follows from {parent}"
    stated = world.heard[0].traceparent
    assert stated is not None, "the handler's own fact carries the trace on"
    assert stated.split("-")[1:3] == [trace_id, format(_id(seen["notes job.cancelled"]), "016x")]


async def test_a_fact_without_a_trace_begins_one(world: World, exporter: InMemorySpanExporter):
    exporter.clear()
    async with world.life():
        await world.cancel_job()
        await world.told(1)
    handled = [made for made in exporter.get_finished_spans() if made.name == "notes job.cancelled"]
    assert [made.parent for made in handled] == [None]


def _id(made: ReadableSpan) -> int:
    assert made.context is not None
    return made.context.span_id


def _parent(made: ReadableSpan) -> int | None:
    return made.parent.span_id if made.parent is not None else None
