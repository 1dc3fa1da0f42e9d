"""Rollouts as users read them: lists of a run's, and one with everything that was said and sampled.

Rollouts of another workspace do not exist for a caller.
"""

from __future__ import annotations

from libs.common.contracts.blobs import Parcel
from libs.common.contracts.requests import Caller
from libs.common.contracts.rollouts import GetRollout, ListRollouts, RolloutDetail, RolloutPage
from libs.common.contracts.runs import GetRun
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.errors import NotFound
from libs.common.identifiers import RolloutId
from libs.common.parcels import unpack
from libs.common.platform import Platform
from libs.common.unit_of_work import UnitsOfWork
from services.rollout.outcomes import view_of
from services.rollout.store import RolloutStore
from services.rollout.tables import RolloutRow


class Reading:
    """Answers questions about rollouts."""

    def __init__(self, platform: Platform, units: UnitsOfWork[RolloutStore]) -> None:
        self._platform = platform
        self._units = units

    async def list_rollouts(self, request: ListRollouts, caller: Caller) -> RolloutPage:
        """Newest first; the cursor is the last id of the page before.

        Raises:
            NotFound: the run does not exist in the caller's workspace.
        """
        async with self._units.read() as store:
            rows = await store.rollouts(
                caller.workspace(),
                request.run_id,
                step=request.step,
                phase=request.phase,
                status=request.status,
                with_tool_calls=request.with_tool_calls,
                before=request.cursor,
                limit=request.limit + 1,
            )
        if not rows and request.cursor is None:
            # The broker knows runs by their rollouts alone: whether there is such a run, its owner says.
            await self._platform.ask(GetRun(run_id=request.run_id), caller)
        page = rows[: request.limit]
        more = len(rows) > request.limit
        return RolloutPage(items=[view_of(row) for row in page], next_cursor=page[-1].id if more else None)

    async def get_rollout(self, request: GetRollout, caller: Caller) -> RolloutDetail:
        """One rollout, with its trajectory once it has ended.

        Raises:
            NotFound: there is none with that id in the caller's workspace.
        """
        async with self._units.read() as store:
            row = await store.rollout(RolloutId(request.rollout_id))
            if row is None or row.workspace_id != caller.workspace():
                raise NotFound(f"there is no rollout {request.rollout_id}; list those of a run")
            group = await store.group(row.group_id)
        parcel = group.parcel_json if group is not None else None
        return RolloutDetail(rollout=view_of(row), trajectory=await self._trajectory(row, parcel))

    async def _trajectory(self, row: RolloutRow, group_json: str | None) -> Trajectory | None:
        if row.trajectory_json is not None:
            own = Parcel[Trajectory].model_validate_json(row.trajectory_json)
            return await unpack(self._platform.blobs, own, Trajectory)
        if group_json is None:
            return None
        parcel = Parcel[Group].model_validate_json(group_json)
        group = await unpack(self._platform.blobs, parcel, Group)
        return next((one for one in group.trajectories if one.rollout_id == row.id), None)
