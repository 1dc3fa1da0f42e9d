"""A rewards service over a local bus, SQLite and a folder; the test plays the rollout broker."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus import QueueSpec
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.envelope import Envelope, Fact
from libs.common.contracts.recipes import CodeSnapshot, RewardRef, ScoringConfig
from libs.common.contracts.rollouts import GroupSampled, GroupScored
from libs.common.contracts.trajectories import Group, Trajectory
from libs.common.identifiers import BatchId, GroupId, RunId, SyncId, WorkspaceId
from libs.common.parcels import pack
from libs.common.platform import Platform
from libs.common.running import running
from libs.common.settings import Settings
from services.rewards.service import build

WORKSPACE = WorkspaceId("ws_test")
DEADLINE_S = 60.0


class World:
    """What the broker sees of the rewards service."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._scored: asyncio.Queue[GroupScored] = asyncio.Queue()
        self._ids = itertools.count()

    async def listen(self) -> None:
        """Hear the scores."""

        async def hear(envelope: Envelope, _delivery: int) -> None:
            fact = envelope.fact()
            assert isinstance(fact, GroupScored)
            await self._scored.put(fact)

        async def bury(envelope: Envelope, _deliveries: int, error: str) -> None:
            raise AssertionError(f"{envelope.type} died: {error}")

        await self.platform.bus.consume(QueueSpec("test.scores", (GroupScored.KEY,)), hear, bury)

    async def code(self, folder: Path, *, has_tools: bool = False) -> CodeSnapshot:
        """A synced commit with the files of a folder."""
        archive = self.platform.settings.data_dir / f"{next(self._ids)}.tar"
        digest = await asyncio.to_thread(_pack_tree, folder, archive)
        ref = await self.platform.blobs.put_file(f"code/{digest}.tar", archive)
        return CodeSnapshot(sync_id=SyncId("sync_1"), commit="c0ffee" * 6, archive=ref, has_tools=has_tools)

    async def score(
        self,
        code: CodeSnapshot,
        rewards: list[RewardRef],
        trajectories: list[Trajectory],
        scoring: ScoringConfig | None = None,
    ) -> GroupScored:
        """State that a group was sampled, and wait for its scores."""
        number = next(self._ids)
        group = Group(
            group_id=f"g{number}",
            run_id="run_1",
            epoch=1,
            batch_id="b1",
            row_index=0,
            trajectories=trajectories,
        )
        await self._state(
            GroupSampled(
                workspace_id=WORKSPACE,
                group_id=GroupId(f"g{number}"),
                batch_id=BatchId("b1"),
                run_id=RunId("run_1"),
                epoch=1,
                step=0,
                phase="train",
                group=await pack(self.platform.blobs, group, f"groups/run_1/g{number}/group.json"),
                code=code,
                rewards=rewards,
                scoring=scoring or ScoringConfig(timeout_s=20),
            )
        )
        async with asyncio.timeout(DEADLINE_S):
            scored = await self._scored.get()
        assert scored.group_id == f"g{number}"
        return scored

    async def _state(self, fact: Fact) -> None:
        envelope = Envelope.wrap(
            fact,
            id=f"evt_{next(self._ids)}",
            source="rollout",
            time=self.platform.clock.now(),
            traceparent=None,
        )
        await (await self.platform.bus.publish(envelope))


def _pack_tree(folder: Path, archive: Path) -> str:
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                tar.add(path, path.relative_to(folder).as_posix())
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def trajectory(answer: str, truth: str, sample_index: int = 0, **fields: Any) -> Trajectory:
    """A finished rollout of one answer."""
    given: dict[str, Any] = {
        "rollout_id": f"ro_{sample_index}",
        "group_id": "g",
        "row_index": 0,
        "sample_index": sample_index,
        "status": "completed",
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}],
        "ground_truth": truth,
        "metadata": {},
        "turns": 1,
        **fields,
    }
    return Trajectory.model_validate(given)


@asynccontextmanager
async def rewards_world(folder: Path) -> AsyncGenerator[World]:
    """A running rewards service."""
    clock = SystemClock()
    platform = Platform(
        settings=Settings(data_dir=folder),
        bus=LocalBus(clock),
        blobs=FolderBlobs(folder / "blobs"),
        clock=clock,
    )
    world = World(platform)
    async with running(platform, [build]):
        await world.listen()
        yield world
