"""Errors as HTTP problem details (RFC 9457): one form for every failure of every route.

Guaranteed: no answer above 399 without a problem body; a defect's text never reaches a user, only its request id.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from libs.common.errors import FieldError, Invalid, OsmosisError

MEDIA_TYPE = "application/problem+json"


class Fault(BaseModel):
    """One fault of the input."""

    path: str = Field(description="where, as in JSON: sampling.temperature, query.limit", examples=["name"])
    message: str = Field(examples=["lower-case letters, digits and hyphens"])


class Problem(BaseModel):
    """RFC 9457 problem details. `errors` names every fault of the input at once."""

    type: str = Field(examples=["urn:osmosis:problem:invalid"])
    title: str = Field(examples=["The input is not valid"])
    status: int = Field(examples=[422])
    detail: str
    instance: str = Field(description="path of the call", examples=["/v1/projects"])
    request_id: str = Field(description="name it when you ask for help")
    errors: list[Fault] = Field(default_factory=list[Fault])


class Gone(OsmosisError):
    """A cursor in front of which events were already forgotten."""

    code = "gone"
    status = 410


class TooSlow(OsmosisError):
    """The body did not arrive in time."""

    code = "too_slow"
    status = 408


class UnsupportedMedia(OsmosisError):
    """The body is of a type that the route does not take."""

    code = "unsupported_media_type"
    status = 415


class RangeNotSatisfiable(OsmosisError):
    """The range begins after the end of the file."""

    code = "range_not_satisfiable"
    status = 416


class Defect(OsmosisError):
    """Something of ours broke; the log has it under the request id."""

    code = "internal"
    status = 500


_TITLES = {
    "not_found": "Not found",
    "conflict": "Not possible in this state",
    "forbidden": "Not allowed",
    "unauthenticated": "Not authenticated",
    "invalid": "The input is not valid",
    "too_large": "Too large",
    "unavailable": "Not available at the moment",
    "gone": "No longer available",
    "too_slow": "The request took too long to arrive",
    "unsupported_media_type": "Unsupported media type",
    "range_not_satisfiable": "Range not satisfiable",
    "internal": "Something broke on our side",
}
_HEADERS = {401: {"WWW-Authenticate": 'Bearer realm="osmosis"'}, 503: {"Retry-After": "2"}}


def request_id_of(scope: Any) -> str:
    """The id that the door gave the request."""
    return str(scope.get("state", {}).get("request_id", ""))


def problem(
    scope: Any,
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    fields: tuple[FieldError, ...] = (),
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """A problem as a response."""
    body = Problem(
        type=f"urn:osmosis:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        instance=str(scope.get("path", "")),
        request_id=request_id_of(scope),
        errors=[Fault(path=field.path, message=field.message) for field in fields],
    )
    return JSONResponse(
        body.model_dump(mode="json"),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**_HEADERS.get(status, {}), **(headers or {})},
    )


def problem_of(scope: Any, error: OsmosisError) -> JSONResponse:
    """An error of the family as a response."""
    return problem(
        scope,
        status=error.status,
        code=error.code,
        title=_TITLES.get(error.code, error.code),
        detail=error.message,
        fields=error.fields,
    )


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error that a route raises, and unknown routes and methods, with a problem."""
    app.add_exception_handler(OsmosisError, _on_osmosis_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_osmosis_error(request: Request, error: Exception) -> JSONResponse:
    return problem_of(request.scope, cast("OsmosisError", error))


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    faults = cast("RequestValidationError", error).errors()
    fields = [FieldError(path_of(fault["loc"]), str(fault["msg"])) for fault in faults]
    where = ", ".join(field.path or "the body" for field in fields[:5])
    return problem_of(request.scope, Invalid(f"the request is not valid: {where}", fields=fields))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    raised = cast("HTTPException", error)
    status = HTTPStatus(raised.status_code)
    detail = {
        404: f"there is nothing at {request.url.path}; GET /openapi.json lists every route",
        405: f"{request.method} is not a method of {request.url.path}",
    }.get(status, str(raised.detail))
    headers = dict(raised.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_of(request))
    return problem(
        request.scope,
        status=status,
        code=status.phrase.lower().replace(" ", "_"),
        title=status.phrase,
        detail=detail,
        headers=headers,
    )


def _methods_of(request: Request) -> list[str]:
    """Methods of the request's path: the framework itself names only those of the first route that it found."""
    routes = cast("list[BaseRoute]", request.app.routes)
    return [
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def path_of(location: tuple[int | str, ...] | list[int | str]) -> str:
    """A validator's location as a path: a field of the body by itself, everything else behind its place."""
    place, *rest = [str(part) for part in location]
    return ".".join(rest if place == "body" else [place, *rest])
