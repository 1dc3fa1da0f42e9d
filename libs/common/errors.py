"""The family of errors that services answer each other and users with.

Each says what is wrong, where, and what to do. The gateway maps them to HTTP problem details; the bus carries them
by `code`. Anything outside this family is a defect, shown to the user as `Unavailable` without its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class FieldError:
    """One fault of the input: `path` as in JSON (`config.sampling.temperature`), `message` with the remedy."""

    path: str
    message: str


class OsmosisError(Exception):
    """Base of the family: `code` on the wire, `status` over HTTP."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.fields = tuple(fields)

    def to_wire(self) -> dict[str, Any]:
        """As it travels over the bus."""
        return {"code": self.code, "message": self.message, "fields": [asdict(f) for f in self.fields]}


class NotFound(OsmosisError):
    """The thing does not exist, or not for this workspace."""

    code = "not_found"
    status = 404


class Conflict(OsmosisError):
    """The thing's state forbids it: a finished run, a name in use, an older epoch."""

    code = "conflict"
    status = 409


class Forbidden(OsmosisError):
    """The caller may not do this."""

    code = "forbidden"
    status = 403


class Unauthenticated(OsmosisError):
    """No key, or one that is unknown, expired or revoked."""

    code = "unauthenticated"
    status = 401


class Invalid(OsmosisError):
    """The input is wrong; `fields` says where."""

    code = "invalid"
    status = 422


class TooLarge(OsmosisError):
    """The input is over a limit that the message names."""

    code = "too_large"
    status = 413


class Unavailable(OsmosisError):
    """Nobody answered in time, or a peer is down: the same call may succeed later."""

    code = "unavailable"
    status = 503


_BY_CODE: dict[str, type[OsmosisError]] = {
    kind.code: kind
    for kind in (NotFound, Conflict, Forbidden, Unauthenticated, Invalid, TooLarge, Unavailable)
}


def from_wire(wire: dict[str, Any]) -> OsmosisError:
    """The typed error that `to_wire` described; an unknown code reads as `Unavailable`."""
    kind = _BY_CODE.get(str(wire.get("code")), Unavailable)
    fields = [FieldError(str(f.get("path")), str(f.get("message"))) for f in wire.get("fields", [])]
    return kind(str(wire.get("message", "no answer")), fields=fields)
