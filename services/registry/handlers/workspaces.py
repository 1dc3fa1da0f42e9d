"""Workspaces and API keys."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from libs.common.clock import Clock
from libs.common.contracts.requests import Caller, Done
from libs.common.contracts.workspaces import (
    NAME_PATTERN,
    Authenticate,
    Authenticated,
    CreateKey,
    CreateWorkspace,
    GetWorkspace,
    KeyPage,
    KeyRevoked,
    KeyView,
    ListKeys,
    ListWorkspaces,
    RevokeKey,
    WorkspaceCreated,
    WorkspacePage,
    WorkspaceView,
)
from libs.common.errors import FieldError, Forbidden, Invalid, NotFound
from libs.common.identifiers import KeyId, WorkspaceId
from libs.common.unit_of_work import UnitOfWork, UnitsOfWork
from services.registry.keys import KnownKey, admit, should_touch
from services.registry.store import RegistryStore
from services.registry.tables import KeyRow, WorkspaceRow
from services.registry.views import key_view, workspace_view

Uow = UnitOfWork[RegistryStore]

RESERVED_NAMES = frozenset(
    [
        "api",
        "admin",
        "new",
        "project",
        "projects",
        "data-sources",
        "tools",
        "reward-functions",
        "llm-judges",
        "rollout-servers",
        "settings",
    ]
)
"""Words of the web addresses (platform features, section 1)."""


def check_name(name: str) -> str:
    """A name for a workspace or a project.

    Raises:
        Invalid: it breaks the rules, or is a word of the web addresses.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        message = "1 to 64 lower-case letters, digits and hyphens, no hyphen first or last"
    elif name in RESERVED_NAMES:
        message = f"{name!r} is a reserved word; choose another name"
    else:
        return name
    raise Invalid("the name is not allowed", fields=[FieldError("name", message)])


async def create_workspace(request: CreateWorkspace, caller: Caller, uow: Uow) -> WorkspaceView:
    """Make a workspace.

    Raises:
        Forbidden: the caller is not the operator.
        Invalid, Conflict: the name or time zone is no good, or taken.
    """
    if caller.kind != "root":
        raise Forbidden("workspaces are made by the operator: use the root key")
    row = WorkspaceRow(
        id=uow.new_id("ws"),
        name=check_name(request.name),
        timezone=_check_timezone(request.timezone),
        created_at=uow.now(),
    )
    await uow.store.workspaces.add(row)
    uow.emit(WorkspaceCreated(workspace_id=WorkspaceId(row.id), name=row.name))
    return workspace_view(row)


def _check_timezone(name: str) -> str:
    if name != "UTC":
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            message = "an IANA name such as Europe/Berlin"
            raise Invalid("the time zone is not known", fields=[FieldError("timezone", message)]) from None
    return name


async def list_workspaces(request: ListWorkspaces, caller: Caller, store: RegistryStore) -> WorkspacePage:
    """All for the operator, the own one for a key."""
    only = None if caller.kind == "root" else caller.workspace()
    page = await store.workspaces.page(only, limit=request.limit, cursor=request.cursor)
    return WorkspacePage(items=[workspace_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def get_workspace(request: GetWorkspace, caller: Caller, store: RegistryStore) -> WorkspaceView:
    """One workspace by id or name.

    Raises:
        NotFound: it does not exist, or not for this caller.
    """
    return workspace_view(await _visible(request.workspace, caller, store))


async def _visible(id_or_name: str, caller: Caller, store: RegistryStore) -> WorkspaceRow:
    row = await store.workspaces.find(id_or_name)
    if row is None or (caller.kind != "root" and row.id != caller.workspace()):
        raise NotFound(f"no workspace {id_or_name}")
    return row


async def create_key(request: CreateKey, caller: Caller, uow: Uow) -> KeyView:
    """Keep a key's digest.

    Raises:
        NotFound: the workspace does not exist, or not for this caller.
        Conflict: the key exists.
    """
    workspace = await _visible(request.workspace, caller, uow.store)
    row = KeyRow(
        id=request.key_id,
        workspace_id=workspace.id,
        digest=request.digest,
        prefix=request.prefix,
        description=request.description,
        created_at=uow.now(),
    )
    await uow.store.workspaces.add_key(row)
    return key_view(row)


async def list_keys(request: ListKeys, caller: Caller, store: RegistryStore) -> KeyPage:
    """Keys of the caller's workspace."""
    page = await store.workspaces.page_of_keys(caller.workspace(), limit=request.limit, cursor=request.cursor)
    return KeyPage(items=[key_view(row) for row in page.rows], next_cursor=page.next_cursor)


async def revoke_key(request: RevokeKey, caller: Caller, uow: Uow) -> Done:
    """Make a key useless; revoking a revoked one changes nothing.

    Raises:
        NotFound: no such key in the workspace.
    """
    row = await uow.store.workspaces.key(caller.workspace(), request.key_id)
    if row is None:
        raise NotFound(f"no key {request.key_id} in this workspace")
    if row.revoked_at is None:
        row.revoked_at = uow.now()
        uow.emit(KeyRevoked(workspace_id=caller.workspace(), key_id=request.key_id, digest=row.digest))
    return Done()


class Authentication:
    """Looks keys up outside of a writing transaction: every call of every user passes here."""

    def __init__(self, units: UnitsOfWork[RegistryStore], clock: Clock) -> None:
        self._units = units
        self._clock = clock

    async def __call__(self, request: Authenticate, caller: Caller) -> Authenticated:
        """Whom a key belongs to.

        Raises:
            Forbidden: the caller is not one of our services.
            Unauthenticated: the key is unknown or revoked.
        """
        if caller.kind != "service":
            raise Forbidden("only services look keys up")
        async with self._units.read() as store:
            row = await store.workspaces.key_by_digest(request.digest)
        key = admit(request.digest, None if row is None else _known(row))
        if should_touch(key, self._clock.now()):
            async with self._units.begin() as uow:
                await uow.store.workspaces.touch_key(key.id, uow.now())
        name = row.description if row is not None else ""
        return Authenticated(
            caller=Caller(kind="key", workspace_id=key.workspace_id, key_id=key.id, name=name)
        )


def _known(row: KeyRow) -> KnownKey:
    return KnownKey(
        KeyId(row.id), WorkspaceId(row.workspace_id), row.digest, row.last_used_at, row.revoked_at
    )
