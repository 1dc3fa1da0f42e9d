"""A trainer service over a local bus, SQLite and a folder, with the peers that a test plays itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import httpx

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus import QueueSpec
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Envelope, Fact, fact_types
from libs.common.contracts.recipes import (
    BaseModelSnapshot,
    CodeSnapshot,
    DatasetSnapshot,
    ExportOrder,
    MergeOrder,
    Recipe,
    ResumePoint,
    RewardRef,
    RunConfig,
    TrainOrder,
)
from libs.common.contracts.requests import Done, ReplyMessage, RequestMessage
from libs.common.contracts.work import LeaseGranted, WorkKind
from libs.common.errors import Conflict, Unavailable
from libs.common.identifiers import (
    DatasetId,
    LeaseId,
    ModelId,
    NodeId,
    ProjectId,
    RunId,
    SyncId,
    WorkId,
    WorkspaceId,
    new_id,
)
from libs.common.platform import Platform
from libs.common.running import running
from libs.common.settings import Settings
from libs.common.tokens import derive_token
from services.trainer.service import build

WORKSPACE = WorkspaceId("ws_test")
DEADLINE_S = 10.0
FactT = TypeVar("FactT", bound=Fact)
NOWHERE = BlobRef(key="nowhere", size=0, sha256="0" * 64)


async def until(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition, with a deadline."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - any condition, not an event of ours
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None


class World:
    """What a test sees: facts that the trainer stated, and what the scheduler was asked."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.heard: list[Fact] = []
        self.envelopes: list[Envelope] = []
        self.beats: list[tuple[str, int]] = []
        self.scheduler_says: type[Conflict] | type[Unavailable] | None = None
        self._epochs: dict[str, int] = {}

    @property
    def address(self) -> str:
        """Where attempts call."""
        return (self.platform.settings.data_dir.absolute() / "run" / "trainer.url").read_text().strip()

    def facts(self, kind: type[FactT]) -> list[FactT]:
        """Facts of a kind that were stated, oldest first."""
        return [fact for fact in self.heard if isinstance(fact, kind)]

    async def state(self, fact: Fact, source: str = "test") -> None:
        """Another service states a fact."""
        envelope = Envelope.wrap(
            fact,
            id=new_id("evt", self.platform.clock.now()),
            source=source,
            time=self.platform.clock.now(),
            traceparent=None,
        )
        await (await self.platform.bus.publish(envelope))

    async def grant(
        self,
        work_id: str,
        order: TrainOrder | MergeOrder | ExportOrder | None = None,
        *,
        epoch: int | None = None,
        kind: WorkKind = "run",
        resume_from: ResumePoint | None = None,
    ) -> int:
        """The scheduler grants a lease of the next epoch."""
        epoch = epoch or self._epochs.get(work_id, 0) + 1
        self._epochs[work_id] = max(epoch, self._epochs.get(work_id, 0))
        content = (order or TrainOrder(recipe=recipe(work_id))).model_dump_json().encode()
        await self.state(
            LeaseGranted(
                workspace_id=WORKSPACE,
                lease_id=LeaseId(f"lease_{work_id}_{epoch}"),
                work_id=WorkId(work_id),
                work_kind=kind,
                epoch=epoch,
                node_id=NodeId("node_1"),
                devices=["cpu:0"],
                order=await self.platform.blobs.put_bytes(f"runs/{work_id}/order.json", content),
                resume_from=resume_from,
            )
        )
        return epoch

    def client(self, work_id: str, epoch: int, token: str | None = None) -> httpx.AsyncClient:
        """An attempt's HTTP client, as raw as can be."""
        return httpx.AsyncClient(
            base_url=f"{self.address}/attempts/{work_id}/{epoch}",
            headers={"Authorization": f"Bearer {token or self.token('attempt', work_id, epoch)}"},
            timeout=DEADLINE_S,
        )

    def token(self, purpose: str, work_id: str, epoch: int) -> str:
        """The token of a purpose."""
        return derive_token(self.platform.settings.deployment_secret, purpose, work_id, epoch)

    async def opened(self, work_id: str, **grant: Any) -> tuple[int, httpx.AsyncClient]:
        """A granted attempt that the trainer has heard of, after its hello."""
        epoch = await self.grant(work_id, **grant)
        client = self.client(work_id, epoch)
        await answered(client, 200)
        return epoch, client

    async def _schedule(self, message: RequestMessage) -> ReplyMessage:
        if self.scheduler_says is not None:
            return ReplyMessage.of(message, self.scheduler_says("said the test"))
        self.beats.append((message.data["work_id"], message.data["epoch"]))
        return ReplyMessage.of(message, Done())

    async def listen(self) -> None:
        """Play the scheduler, and hear every fact that the trainer states."""

        async def hear(envelope: Envelope, _delivery: int) -> None:
            if envelope.source == "/osmosis/trainer":
                self.envelopes.append(envelope)
                self.heard.append(envelope.fact())

        async def bury(envelope: Envelope, _deliveries: int, error: str) -> None:
            raise AssertionError(f"{envelope.type} died: {error}")

        every = tuple(sorted(kind.KEY for kind in fact_types().values()))
        await self.platform.bus.consume(QueueSpec("test.facts", every), hear, bury)
        await self.platform.bus.serve("scheduler", self._schedule)


async def answered(client: httpx.AsyncClient, status: int, path: str = "/hello") -> httpx.Response:
    """Call until the answer has a status: facts travel on their own time."""
    answer = await client.post(path)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while answer.status_code != status:
                await asyncio.sleep(0.01)
                answer = await client.post(path)
    except TimeoutError:
        raise AssertionError(f"{path} answers {answer.status_code} {answer.text}, not {status}") from None
    return answer


def open_test_platform(folder: Path, **settings: Any) -> Platform:
    """A platform in a folder."""
    chosen, clock = Settings(data_dir=folder, **settings), SystemClock()
    return Platform(settings=chosen, bus=LocalBus(clock), blobs=FolderBlobs(folder / "blobs"), clock=clock)


@asynccontextmanager
async def trainer_world(
    folder: Path, *, queues: tuple[QueueSpec, ...] = (), **settings: Any
) -> AsyncGenerator[World]:
    """A running trainer service. `queues` of peers exist before it starts, so that they miss nothing."""
    platform = open_test_platform(folder, **settings)
    for queue in queues:
        await platform.bus.declare(queue)
    world = World(platform)
    address = folder / "run" / "trainer.url"
    before = address.stat().st_mtime_ns if address.exists() else None
    async with running(platform, [build]):
        await world.listen()
        await until(
            lambda: address.exists() and address.stat().st_mtime_ns != before, "the trainer's address"
        )
        yield world


async def empty_database(url: str) -> None:
    """Drop the trainer's schema of a PostgreSQL database."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP SCHEMA IF EXISTS trainer CASCADE")
    finally:
        await connection.close()


def recipe(
    run_id: str,
    *,
    rows: int = 8,
    base_model: BlobRef = NOWHERE,
    content: BlobRef = NOWHERE,
    index: BlobRef = NOWHERE,
    **config: Any,
) -> Recipe:
    """A frozen recipe; `config` overrides fields of its configuration."""
    defaults: dict[str, Any] = {
        "base_model": "tiny",
        "dataset": "ds_test",
        "rewards": [{"name": "compute_reward.reward"}],
    }
    return Recipe(
        run_id=RunId(run_id),
        workspace_id=WORKSPACE,
        project_id=ProjectId("prj_test"),
        config=RunConfig.model_validate(defaults | config),
        base_model=BaseModelSnapshot(model_id=ModelId("mdl_tiny"), name="tiny", manifest=base_model),
        dataset=DatasetSnapshot(dataset_id=DatasetId("ds_test"), rows=rows, content=content, index=index),
        code=CodeSnapshot(sync_id=SyncId("sync_1"), commit="c" * 40, archive=NOWHERE, has_tools=False),
        rewards=[
            RewardRef(
                name="compute_reward.reward",
                kind="reward",
                file="reward_fn/compute_reward.py",
                function="reward",
                weight=1.0,
            )
        ],
    )
