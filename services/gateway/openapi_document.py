"""The OpenAPI document: what the routes say of themselves, and what holds for all of them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from libs.common.contracts.recipes import RunConfig
from services.gateway.door import OPEN_PATHS
from services.gateway.problems import MEDIA_TYPE, Problem

JsonObject = dict[str, Any]
"""A part of the document: free-form by its nature."""

_DESCRIPTION = """\
Trains LLM agents with reinforcement learning on your own machines.

Send `Authorization: Bearer osm_…` with every call. Lists come in pages: pass `next_cursor` on as `cursor`. Every error
is a problem (RFC 9457) with a `request_id` and, where the input is at fault, every fault with its path. A command may
carry an `Idempotency-Key`: sent again, it answers what it answered first."""

_TAGS = {
    "workspaces": "A team's own place: nothing in it is seen from another one.",
    "keys": "API keys of a workspace.",
    "projects": "What is trained together: a repository and its runs.",
    "syncs": "Versions of a project's code.",
    "datasets": "Rows to train on: JSONL, CSV or Parquet.",
    "base models": "Models that runs start from.",
    "runs": "Training runs.",
    "metrics": "Curves of a run, in ranges and live.",
    "rollouts": "Every conversation that a run learned from.",
    "checkpoints": "Saved states of a run.",
    "models": "Merged models and their Hugging Face folders.",
    "jobs": "Merges and exports at work.",
    "events": "What happens in a workspace, as a stream.",
    "nodes": "Machines of the pool.",
    "dead letters": "Facts that a service could not handle.",
    "operations": "Health, readiness, Prometheus.",
}

_PROBLEMS = {
    "401": "No API key, or one that opens nothing",
    "403": "The key may not do this",
    "404": "There is no such thing in this workspace",
    "405": "The path has no such method",
    "408": "The body did not arrive in time",
    "409": "The state of the thing forbids it, or the Idempotency-Key was used for another request",
    "410": "Events behind the cursor are no longer kept",
    "413": "The body is too large",
    "415": "The body is of a type that the route does not take",
    "416": "The range begins after the end of the file",
    "422": "The input is not valid; `errors` names every fault",
    "500": "A defect of the platform",
    "503": "A service did not answer in time: try again",
}
_EVERYWHERE = ("401", "403", "404", "422", "500", "503")
_WITH_BODY = ("408", "413", "415")


def describe(app: FastAPI) -> None:
    """Let the app answer with the full document."""

    def document() -> JsonObject:
        if not app.openapi_schema:
            app.openapi_schema = complete(app)
        return app.openapi_schema

    app.openapi = document


def complete(app: FastAPI) -> JsonObject:
    """The document with problems, security and examples of every operation."""
    document: JsonObject = get_openapi(
        title="Osmosis",
        version="1",
        description=_DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        separate_input_output_schemas=app.separate_input_output_schemas,
    )
    components = document.setdefault("components", {})
    schemas: JsonObject = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for kind in (Problem, RunConfig):
        _add_schema(schemas, kind)
    components["securitySchemes"] = {
        "apiKey": {"type": "http", "scheme": "bearer", "description": "an API key: `osm_…`"}
    }
    components["responses"] = {f"Problem{status}": _problem(status) for status in _PROBLEMS}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)
    return document


def _add_schema(schemas: JsonObject, kind: type[Any]) -> None:
    schema = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schemas[kind.__name__] = schema


def _complete_operation(path: str, method: str, operation: JsonObject) -> None:
    responses: JsonObject = operation["responses"]
    responses.pop("422", None)
    statuses = {"500", *(status for status in responses if status in _PROBLEMS and path not in OPEN_PATHS)}
    if path not in OPEN_PATHS:
        operation["security"] = [{"apiKey": []}]
        statuses.update(_EVERYWHERE)
    if method != "get":
        statuses.update(("409", *_WITH_BODY))
    responses.update({status: {"$ref": f"#/components/responses/Problem{status}"} for status in statuses})
    operation["responses"] = dict(sorted(responses.items()))


def _problem(status: str) -> JsonObject:
    return {
        "description": _PROBLEMS[status],
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def documented(*statuses: int) -> dict[int | str, JsonObject]:
    """Problems that only some routes answer with, for their `responses=`."""
    return {status: {"description": _PROBLEMS[str(status)]} for status in statuses}
