"""The service keeps nothing beside the common tables: a verdict lives with its trajectory, in the rollout service."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession


class RewardsStore:
    """One session; there is nothing of its own to ask."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
