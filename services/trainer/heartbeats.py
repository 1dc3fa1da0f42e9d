"""Passes attempts' heartbeats on to the scheduler: often enough to keep a lease, seldom enough to cost nothing.

Not promised here: that the scheduler hears them. When it does not answer, the lease's own time decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from libs.common.contracts.work import Heartbeat
from libs.common.errors import Conflict, NotFound, OsmosisError
from libs.common.identifiers import WorkId
from libs.common.platform import Platform, as_service
from services.trainer.domain import heartbeat_pause_s

ASK_TIMEOUT_S = 5.0

_log = structlog.get_logger(__name__)


class Heartbeats:
    """Remembers when each attempt's heartbeat last reached the scheduler from this replica."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._pause = timedelta(seconds=heartbeat_pause_s(platform.settings.lease_ttl_s))
        self._passed: dict[tuple[WorkId, int], datetime] = {}

    async def lease_is_held(self, work_id: WorkId, epoch: int) -> bool:
        """Pass a heartbeat on when it is time to; False once the scheduler says that the lease is gone."""
        now = self._platform.clock.now()
        passed = self._passed.get((work_id, epoch))
        if passed is not None and now - passed < self._pause:
            return True
        try:
            request = Heartbeat(work_id=work_id, epoch=epoch)
            await self._platform.ask(request, as_service("trainer"), timeout_s=ASK_TIMEOUT_S)
        except (Conflict, NotFound) as refusal:
            _log.info("the lease is gone", work_id=work_id, epoch=epoch, reason=refusal.message)
            self._passed.pop((work_id, epoch), None)
            return False
        except OsmosisError as error:
            _log.warning("a heartbeat did not reach the scheduler", work_id=work_id, error=error.message)
            return True
        self._passed = {key: at for key, at in self._passed.items() if now - at < self._pause}
        self._passed[work_id, epoch] = now
        return True
