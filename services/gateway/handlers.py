"""Every public fact goes into the event log, in the transaction that records it as heard: once, whatever the bus does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.contracts.envelope import Fact
from libs.common.unit_of_work import UnitOfWork
from services.gateway.public_events import shown
from services.gateway.store import GatewayStore

Log = Callable[[Fact, UnitOfWork[GatewayStore]], Awaitable[None]]


def logging_events(wake: Callable[[], None]) -> Log:
    """The handler of public facts; `wake` tells the streams that the log has grown."""

    async def log(_fact: Fact, uow: UnitOfWork[GatewayStore]) -> None:
        if uow.cause is None:
            raise ValueError("an event is logged from its envelope, and there is none")
        await uow.store.append(shown(uow.cause), uow.now())
        uow.after_commit(wake)

    return log
