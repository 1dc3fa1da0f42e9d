"""Questions and commands that want an answer, and who asks.

A request class names the service that answers it and the type of the reply. A command changes something: it may carry
an idempotency key, and asking again with the same key gives the first reply.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from libs.common.contracts.envelope import Contract
from libs.common.errors import OsmosisError, Unauthenticated, from_wire
from libs.common.identifiers import WorkspaceId


class Reply(Contract):
    """Base of every answer."""


class Done(Reply):
    """The answer of a command that has nothing to tell."""


ReplyT = TypeVar("ReplyT", bound=Reply)


class Caller(Contract):
    """Who asks. `root` is the operator's key, `service` one of ours; both may lack a workspace."""

    kind: Literal["key", "root", "service"]
    workspace_id: WorkspaceId | None = None
    key_id: str | None = None
    name: str = ""

    def workspace(self) -> WorkspaceId:
        """The workspace that the caller acts in.

        Raises:
            Unauthenticated: the caller has none (the root key on a workspace's route).
        """
        if self.workspace_id is None:
            raise Unauthenticated("this call needs a workspace's API key; the root key only makes workspaces")
        return self.workspace_id


class Request(Contract, Generic[ReplyT]):
    """Subclass as `class GetRun(Request[RunView], service="registry", name="get_run")`; `command=True` if it changes."""

    SERVICE: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    COMMAND: ClassVar[bool] = False
    REPLY: ClassVar[type[Reply]] = Done

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The keywords are read below, once pydantic has made the fields.
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, service: str = "", name: str = "", command: bool = False, **kwargs: Any
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not service:
            return
        cls.SERVICE, cls.NAME, cls.COMMAND = service, name, command
        for base in cls.__mro__:
            args = getattr(base, "__pydantic_generic_metadata__", {}).get("args", ())
            if args:
                cls.REPLY = args[0]
                break
        known = _REQUESTS.setdefault(f"{service}.{name}", cls)
        if known is not cls:
            raise TypeError(f"request {service}.{name} is registered twice")


_REQUESTS: dict[str, type[Request[Any]]] = {}


def request_types() -> dict[str, type[Request[Any]]]:
    """Every registered request by `service.name`."""
    return dict(_REQUESTS)


class RequestMessage(Contract):
    """A request as it travels."""

    id: str
    name: str = Field(description="service.name")
    caller: Caller
    deadline: datetime
    idempotency_key: str | None = None
    traceparent: str | None = None
    data: dict[str, Any]


class ReplyMessage(Contract):
    """An answer as it travels: `data` or `error`, never both."""

    id: str
    data: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    def open(self, kind: type[ReplyT]) -> ReplyT:
        """The typed reply.

        Raises:
            OsmosisError: the typed error that the service answered.
        """
        if self.error is not None:
            raise from_wire(self.error)
        return kind.model_validate(self.data or {})

    @classmethod
    def of(cls, request: RequestMessage, result: Reply | OsmosisError) -> ReplyMessage:
        """The answer to `request`."""
        if isinstance(result, OsmosisError):
            return cls(id=request.id, error=result.to_wire())
        return cls(id=request.id, data=result.model_dump(mode="json"))


class Page(Reply):
    """Base of list replies: `next_cursor` is None on the last page."""

    next_cursor: str | None = None


class PageRequest(Contract):
    """Mixin of list requests."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = None
