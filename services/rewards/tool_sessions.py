"""Open tool sessions of this replica, by id.

Guaranteed here: a session whose owner forgot it is closed after `IDLE_S` seconds; there are never more than `MOST`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from libs.common.errors import NotFound, Unavailable
from services.rewards.tools import ToolSession

IDLE_S = 1800.0
MOST = 4096


@dataclass
class OpenSession:
    """A session, the tools that its rollout may call (None: all), and when it was last used."""

    session: ToolSession
    allowed: frozenset[str] | None
    used_at: float


class ToolSessions:
    """The sessions that are open now."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._open: dict[str, OpenSession] = {}

    def add(self, session: ToolSession, allowed: frozenset[str] | None) -> str:
        """Keep a session; its id can't be guessed. Raises Unavailable when there are too many."""
        if len(self._open) >= MOST:
            raise Unavailable(
                f"{MOST} tool sessions are open on this replica; try again when some have ended"
            )
        session_id = f"tools_{secrets.token_hex(12)}"
        self._open[session_id] = OpenSession(session, allowed, self._monotonic())
        return session_id

    def get(self, session_id: str) -> OpenSession:
        """The session. Raises NotFound when it was closed, or this replica started after it was opened."""
        found = self._open.get(session_id)
        if found is None:
            raise NotFound(
                "the tool session is gone: it was closed, or the service was restarted; open a new one"
            )
        found.used_at = self._monotonic()
        return found

    async def close(self, session_id: str) -> None:
        """End a session; one that is gone is no error."""
        found = self._open.pop(session_id, None)
        if found is not None:
            await found.session.aclose()

    async def close_idle(self) -> None:
        """End the sessions that were not used for `IDLE_S` seconds."""
        before = self._monotonic() - IDLE_S
        for session_id in [key for key, one in self._open.items() if one.used_at <= before]:
            await self.close(session_id)

    async def aclose(self) -> None:
        """End all of them."""
        for session_id in list(self._open):
            await self.close(session_id)
