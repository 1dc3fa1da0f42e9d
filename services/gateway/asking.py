"""A route's way to ask: the request goes to its service in the caller's name, and its typed errors become problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request

from libs.common.contracts.requests import Caller, ReplyT
from libs.common.contracts.requests import Request as BusRequest
from libs.common.errors import Forbidden
from libs.common.platform import Platform
from services.gateway.state import caller_of, gateway_of


@dataclass(frozen=True)
class Asker:
    """Asks in the name of one HTTP request's caller."""

    platform: Platform
    caller: Caller
    idempotency_key: str | None = None

    async def __call__(
        self, request: BusRequest[ReplyT], *, to: str | None = None, timeout_s: float | None = None
    ) -> ReplyT:
        """Ask and wait for the answer.

        Raises:
            OsmosisError: what the service answered.
        """
        return await self.platform.ask(
            request, self.caller, timeout_s=timeout_s, idempotency_key=self.idempotency_key, to=to
        )

    def as_operator(self) -> None:
        """Go on for the operator alone.

        Raises:
            Forbidden: the caller's key is a workspace's.
        """
        if self.caller.kind != "root":
            raise Forbidden("this call is the operator's: use the root key")


def _asker(request: Request) -> Asker:
    return Asker(gateway_of(request).platform, caller_of(request))


def _commander(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=r"^[\x21-\x7e]{1,200}$",
            description="Names this command. Sent again with the same key within 14 days it is not carried out"
            " again: its first answer is given. The same key with another body is a conflict.",
            examples=["7f1b7a52-6c3e-4b0c-9b2f-0a2c5f4c1a11"],
        ),
    ] = None,
) -> Asker:
    return Asker(gateway_of(request).platform, caller_of(request), idempotency_key)


Ask = Annotated[Asker, Depends(_asker)]
"""For questions."""

Command = Annotated[Asker, Depends(_commander)]
"""For what changes something: takes the caller's Idempotency-Key along."""
