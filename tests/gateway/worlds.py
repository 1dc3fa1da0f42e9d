"""A gateway that listens, and services behind it that answer by the real contract from what a test says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from libs.common.blobs.folder import FolderBlobs
from libs.common.bus.local import LocalBus
from libs.common.clock import SystemClock
from libs.common.contracts.datasets import CompleteUpload
from libs.common.contracts.envelope import Fact
from libs.common.contracts.requests import Caller, Reply, Request, request_types
from libs.common.contracts.workspaces import Authenticate, Authenticated, CreateKey
from libs.common.errors import NotFound, Unauthenticated
from libs.common.identifiers import KeyId, WorkspaceId
from libs.common.platform import Platform
from libs.common.service import Service
from libs.common.settings import Settings
from libs.common.unit_of_work import UnitOfWork
from services.gateway.keys import digest_of
from tests.gateway.samples import ANSWERS, DATASET_VIEW, KEY, MINE, THEIRS

ROOT_KEY = "osm_root_for-the-tests-only"
OWNER_KEY = "osm_owner_0123456789"
STRANGER_KEY = "osm_stranger_0123456789"
OTHER_SERVICES = ("registry", "scheduler", "trainer", "rollout", "rewards", "metrics")
_MIGRATIONS = Path(__file__).parent / "migrations"
_NAMES_SOMETHING = frozenset(
    {
        "checkpoint_id",
        "dataset_id",
        "job_id",
        "key_id",
        "model_id",
        "project_id",
        "rollout_id",
        "run_id",
        "sync_id",
        "work_id",
        "workspace",
    }
)


def platform_of(folder: Path, **settings: Any) -> Platform:
    """The embedded column over a folder."""
    chosen = Settings(
        data_dir=folder,
        port=0,
        root_key=SecretStr(ROOT_KEY),
        secret_key=SecretStr("for-the-tests-only"),
        **settings,
    )
    clock = SystemClock()
    return Platform(chosen, LocalBus(clock), FolderBlobs(folder / "blobs"), clock)


@dataclass
class Asked:
    """A request as a service saw it."""

    request: Request[Any]
    caller: Caller


@dataclass
class World:
    """What the services behind the gateway know. Everything belongs to the workspace `MINE`."""

    keys: dict[str, Caller] = field(default_factory=dict[str, Caller])
    asked: list[Asked] = field(default_factory=list[Asked])
    scripted: dict[type[Any], Callable[[Any], Reply]] = field(
        default_factory=dict[type[Any], Callable[[Any], Reply]]
    )
    services: dict[str, Service[Any]] = field(default_factory=dict[str, Service[Any]])
    blobs: FolderBlobs | None = None
    address: str = ""

    def __post_init__(self) -> None:
        self.know(OWNER_KEY, MINE, KeyId("key_owner"))
        self.know(STRANGER_KEY, THEIRS, KeyId("key_stranger"))

    def know(self, key: str, workspace: WorkspaceId, key_id: KeyId) -> None:
        """A key opens a workspace."""
        self.keys[digest_of(key)] = Caller(kind="key", workspace_id=workspace, key_id=key_id)

    def build(self, platform: Platform) -> Service[Any]:
        """One service that answers the requests of all six."""
        service: Service[Any] = Service(
            "registry", platform, store=lambda session: session, migrations=_MIGRATIONS
        )
        for kind in request_types().values():
            if kind.SERVICE in OTHER_SERVICES:
                service.answer(kind, self._answer)
        self.services["registry"] = service
        return service

    async def _answer(self, request: Request[Any], caller: Caller, uow: UnitOfWork[Any]) -> Reply:
        self.asked.append(Asked(request, caller))
        if type(request) in self.scripted:
            return self.scripted[type(request)](request)
        if isinstance(request, Authenticate):
            return self._authenticate(request)
        self._check_owner(request, caller)
        if isinstance(request, CreateKey):
            return KEY.model_copy(update={"id": request.key_id, "prefix": request.prefix})
        if isinstance(request, CompleteUpload):
            return DATASET_VIEW.model_copy(update={"status": "processing", "size": request.content.size})
        return ANSWERS[type(request).REPLY]

    def _authenticate(self, request: Authenticate) -> Authenticated:
        if request.digest not in self.keys:
            raise Unauthenticated("this key is unknown or revoked")
        return Authenticated(caller=self.keys[request.digest])

    def _check_owner(self, request: Request[Any], caller: Caller) -> None:
        names = _NAMES_SOMETHING & {name for name, value in request.model_dump().items() if value is not None}
        if isinstance(request, CreateKey):
            names -= {"key_id"} | ({"workspace"} if request.workspace == caller.workspace_id else set())
        if caller.kind == "key" and caller.workspace_id != MINE and names:
            raise NotFound(f"no such {sorted(names)[0]}")

    def requests(self, kind: type[Any]) -> list[Any]:
        """Every request of a kind that was asked."""
        return [asked.request for asked in self.asked if isinstance(asked.request, kind)]

    async def state(self, *facts: Fact) -> None:
        """The registry states facts."""
        async with self.services["registry"].units.begin() as uow:
            for fact in facts:
                uow.emit(fact)

    def client(self, key: str | None = OWNER_KEY) -> httpx.AsyncClient:
        """A client with a key."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(base_url=self.address, headers=headers, timeout=20)


@dataclass(frozen=True)
class Frame:
    """A server-sent event."""

    id: str
    event: str
    data: dict[str, Any]


async def frames(answer: httpx.Response) -> AsyncIterator[Frame]:
    """Events of a stream; comments are skipped."""
    last_id, event = "", ""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            last_id = value
        elif name == "event":
            event = value
        elif name == "data":
            yield Frame(last_id, event, json.loads(value))


async def take(answer: httpx.Response, count: int) -> list[Frame]:
    """The next events of a stream."""
    taken: list[Frame] = []
    async for frame in frames(answer):
        taken.append(frame)
        if len(taken) == count:
            return taken
    raise AssertionError(f"the stream ended after {len(taken)} of {count} events")


def now() -> datetime:
    return datetime.now(UTC)
