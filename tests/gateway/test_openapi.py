"""The documentation: valid, current, and complete."""

from __future__ import annotations

import json
from typing import Any

from openapi_spec_validator import validate

from libs.common.contracts.recipes import RunConfig
from services.gateway.door import OPEN_PATHS
from services.gateway.openapi import DOCUMENT, rendered
from services.gateway.problems import Problem
from tests.gateway.worlds import World

SPEC: dict[str, Any] = json.loads(rendered())
OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, operations in SPEC["paths"].items()
    for method, operation in operations.items()
]


def test_the_document_in_the_repository_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == rendered(), "run: python -m services.gateway.openapi"


def test_the_document_is_valid() -> None:
    validate(SPEC)


async def test_the_running_gateway_serves_the_same_document(world: World) -> None:
    async with world.client(None) as client:
        assert (await client.get("/openapi.json")).json() == SPEC
        assert (await client.get("/docs")).status_code == 200


def test_every_operation_explains_itself() -> None:
    tags = {tag["name"] for tag in SPEC["tags"]}
    lacking = [
        name
        for name, op in OPERATIONS
        if not (op.get("summary") and op.get("description") and op.get("tags"))
    ]
    assert lacking == []
    assert {tag for _, op in OPERATIONS for tag in op["tags"]} <= tags
    ids = [op["operationId"] for _, op in OPERATIONS]
    assert len(ids) == len(set(ids))


def test_every_operation_documents_its_problems_and_its_key() -> None:
    for name, operation in OPERATIONS:
        if name.split(" ")[1] in OPEN_PATHS:
            continue
        assert operation["security"] == [{"apiKey": []}], name
        assert {"401", "403", "404", "422", "500", "503"} <= set(operation["responses"]), name
    for response in SPEC["components"]["responses"].values():
        assert response["content"]["application/problem+json"]["schema"]["$ref"].endswith("/Problem")
    assert set(SPEC["components"]["schemas"]["Problem"]["properties"]) == set(Problem.model_fields)


def test_every_post_takes_an_idempotency_key() -> None:
    posts = [(name, op) for name, op in OPERATIONS if name.startswith("POST")]
    without = [n for n, op in posts if "Idempotency-Key" not in {p["name"] for p in op.get("parameters", [])}]
    assert len(posts) > 10
    assert without == []


def test_the_example_of_a_run_is_a_valid_configuration() -> None:
    body = SPEC["paths"]["/v1/projects/{project_id}/runs"]["post"]["requestBody"]["content"][
        "application/json"
    ]
    assert body["schema"]["$ref"] == "#/components/schemas/RunConfig"
    RunConfig.model_validate(body["examples"]["additions"]["value"])
