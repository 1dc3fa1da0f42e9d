"""A rollout broker over a local bus, SQLite and a folder, with the peers of `tests.rollout.peers`."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from libs.common.blobs.folder import FolderBlobs
from libs.common.blobs.folders import upload_folder
from libs.common.bus import QueueSpec
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.envelope import Envelope, Fact, fact_types
from libs.common.contracts.recipes import (
    BaseModelSnapshot,
    CodeSnapshot,
    DatasetSnapshot,
    Recipe,
    RewardRef,
    RunConfig,
    SamplingConfig,
)
from libs.common.contracts.requests import Caller, ReplyMessage, RequestMessage
from libs.common.contracts.rollouts import (
    BatchRequested,
    GetRollout,
    GroupCompleted,
    GroupSpec,
    ListRollouts,
    RolloutDetail,
    RolloutPage,
)
from libs.common.contracts.trajectories import Group
from libs.common.errors import NotFound
from libs.common.identifiers import (
    BatchId,
    DatasetId,
    GroupId,
    ModelId,
    ProjectId,
    RolloutId,
    RunId,
    SyncId,
    WorkspaceId,
)
from libs.common.parcels import unpack
from libs.common.platform import Platform
from libs.common.running import running
from libs.common.settings import Settings
from services.rollout.models import renderer_of
from services.rollout.service import build
from tests.rollout.chat_templates import write_tokenizer
from tests.rollout.peers import Engine, Policy, Rewards, engine_at_work
from tests.support.tiny_model import CHATML

WORKSPACE = WorkspaceId("ws_test")
OWNER = Caller(kind="key", workspace_id=WORKSPACE)
STRANGER = Caller(kind="key", workspace_id=WorkspaceId("ws_other"))
RUN = RunId("run_1")
DEADLINE_S = 15.0
FactT = TypeVar("FactT", bound=Fact)
Row = dict[str, Any]


def row(number: int, **columns: Any) -> Row:
    """A row of a dataset."""
    return {
        "system_prompt": "",
        "user_prompt": f"What is {number} + 1?",
        "ground_truth": str(number + 1),
        "level": number,
        **columns,
    }


def echo_the_seed(asked: dict[str, Any], _prompt: str) -> str:
    """A policy: the last digits of the seed."""
    return str(asked["seed"] % 1000)


async def until(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition, with a deadline."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - any condition, not an event of ours
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None


class World:
    """What a test sees and does."""

    def __init__(self, platform: Platform, engine: Engine, rewards: Rewards) -> None:
        self.platform = platform
        self.engine = engine
        self.rewards = rewards
        self.heard: list[Fact] = []
        self.asked_registry: list[str] = []
        self._ids = itertools.count()

    @property
    def address(self) -> str:
        """Where agents call."""
        return (self.platform.settings.data_dir / "run" / "rollout.url").read_text().strip()

    def facts(self, kind: type[FactT]) -> list[FactT]:
        """Facts of a kind that the broker stated, oldest first."""
        return [fact for fact in self.heard if isinstance(fact, kind)]

    async def state(self, fact: Fact, *, event_id: str | None = None) -> None:
        """Another service states a fact; returns when everybody has handled it."""
        envelope = Envelope.wrap(
            fact,
            id=event_id or f"evt_test_{next(self._ids)}",
            source="test",
            time=self.platform.clock.now(),
            traceparent=None,
        )
        await (await self.platform.bus.publish(envelope))

    async def recipe(
        self,
        rows: list[Row],
        *,
        validation: list[Row] | None = None,
        has_tools: bool = False,
        template: str = CHATML,
        context_length: int = 100_000,
        **config: Any,
    ) -> BlobRef:
        """Store a recipe with a dataset and a model's tokenizer; `config` overrides its configuration."""
        folder = self.platform.settings.data_dir / f"model-{next(self._ids)}"
        await asyncio.to_thread(write_tokenizer, folder, template, context_length=context_length)
        (folder / "model.safetensors").write_bytes(b"weights that the broker never fetches")
        defaults: dict[str, Any] = {
            "base_model": "tiny",
            "dataset": "ds_1",
            "rewards": [{"name": "compute_reward.reward"}],
        }
        code = await self.platform.blobs.put_bytes("code/none.tar", b"")
        recipe = Recipe(
            run_id=RUN,
            workspace_id=WORKSPACE,
            project_id=ProjectId("prj_1"),
            config=RunConfig.model_validate(defaults | config),
            base_model=BaseModelSnapshot(
                model_id=ModelId("mdl_1"),
                name="tiny",
                manifest=await upload_folder(
                    self.platform.blobs, folder, f"base-models/{folder.name}", kind="base_model"
                ),
            ),
            dataset=await self._dataset(rows),
            validation_dataset=None if validation is None else await self._dataset(validation),
            code=CodeSnapshot(sync_id=SyncId("sync_1"), commit="c" * 40, archive=code, has_tools=has_tools),
            rewards=[
                RewardRef(
                    name="compute_reward.reward", kind="reward", file="a.py", function="reward", weight=1.0
                )
            ],
        )
        key = f"runs/{RUN}/recipe-{next(self._ids)}.json"
        return await self.platform.blobs.put_bytes(key, recipe.model_dump_json().encode())

    async def _dataset(self, rows: list[Row]) -> DatasetSnapshot:
        lines = [json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in rows]
        offsets = [0, *itertools.accumulate(map(len, lines))]
        name = f"datasets/ds-{next(self._ids)}"
        put = self.platform.blobs.put_bytes
        return DatasetSnapshot(
            dataset_id=DatasetId("ds_1"),
            rows=len(rows),
            content=await put(f"{name}/content.jsonl", b"".join(lines)),
            index=await put(f"{name}/index", struct.pack(f"<{len(offsets)}Q", *offsets)),
        )

    def batch(self, recipe: BlobRef, rows: list[int], **changes: Any) -> BatchRequested:
        """A batch of one group a row."""
        number = next(self._ids)
        deadline_s = changes.pop("deadline_s", 60.0)
        values: dict[str, Any] = {
            "workspace_id": WORKSPACE,
            "batch_id": BatchId(f"batch_{number}"),
            "run_id": RUN,
            "epoch": 1,
            "step": 1,
            "phase": "train",
            "recipe": recipe,
            "engine_url": self.engine.url,
            "groups": [GroupSpec(group_id=GroupId(f"group_{number}_{one}"), row_index=one) for one in rows],
            "n_samples": 2,
            "sampling": SamplingConfig(max_response_length=256),
            "seed": 11,
            "deadline": self.platform.clock.now() + timedelta(seconds=deadline_s),
        }
        return BatchRequested(**(values | changes))

    async def groups_of(self, batch: BatchRequested) -> list[Group]:
        """The batch's groups once all are completed, in the order of its rows."""

        def completed() -> dict[str, GroupCompleted]:
            mine = [fact for fact in self.facts(GroupCompleted) if fact.batch_id == batch.batch_id]
            return {fact.group_id: fact for fact in mine}

        await until(lambda: len(completed()) == len(batch.groups), "every group is completed")
        facts = [completed()[spec.group_id] for spec in batch.groups]
        return [await unpack(self.platform.blobs, fact.group, Group) for fact in facts]

    async def sample(self, batch: BatchRequested) -> list[Group]:
        """Ask for a batch and wait for it."""
        await self.state(batch)
        return await self.groups_of(batch)

    async def rollouts(self, caller: Caller = OWNER, **filters: Any) -> RolloutPage:
        """A page of the run's rollouts."""
        values: dict[str, Any] = {"run_id": RUN, "limit": 500}
        return await self.platform.ask(ListRollouts(**(values | filters)), caller)

    async def rollout(self, rollout_id: str, caller: Caller = OWNER) -> RolloutDetail:
        """One rollout."""
        return await self.platform.ask(GetRollout(rollout_id=RolloutId(rollout_id)), caller)

    async def listen(self) -> None:
        """Hear what the broker states, and play the registry that knows no run."""

        async def hear(envelope: Envelope, _delivery: int) -> None:
            if envelope.source == "/osmosis/rollout":
                self.heard.append(envelope.fact())

        async def bury(envelope: Envelope, _deliveries: int, error: str) -> None:
            raise AssertionError(f"{envelope.type} died: {error}")

        async def registry(message: RequestMessage) -> ReplyMessage:
            self.asked_registry.append(message.data["run_id"])
            return ReplyMessage.of(message, NotFound("there is no such run"))

        every = tuple(sorted(kind.KEY for kind in fact_types().values()))
        await self.platform.bus.consume(QueueSpec("test.facts", every), hear, bury)
        await self.platform.bus.serve("registry", registry)
        await self.rewards.start()


@asynccontextmanager
async def rollout_world(
    folder: Path, policy: Policy = echo_the_seed, database_url: str = "", engine_port: int = 0
) -> AsyncGenerator[World]:
    """A running broker with its peers; leaving the block and coming again is a restart."""
    clock = SystemClock()
    settings = Settings(data_dir=folder, database_url=database_url)
    platform = Platform(settings, bus=LocalBus(clock), blobs=FolderBlobs(folder / "blobs"), clock=clock)
    renderer = await asyncio.to_thread(
        lambda: renderer_of(write_tokenizer(folder / "engine-tokenizer", CHATML))
    )
    async with engine_at_work(renderer, policy, engine_port) as engine:
        world = World(platform, engine, Rewards(platform))
        address = folder / "run" / "rollout.url"
        before = address.stat().st_mtime_ns if address.exists() else None
        async with running(platform, [build]):
            await world.listen()
            await until(
                lambda: address.exists() and address.stat().st_mtime_ns != before, "the broker's address"
            )
            yield world
            # Calls that hang would hold the engine's server up.
            engine.open.set()
