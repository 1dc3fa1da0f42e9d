"""Workspaces, keys and projects as the gateway asks for them; what is another workspace's is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from libs.common.contracts.code import SyncRepository
from libs.common.contracts.workspaces import (
    Authenticate,
    ConnectRepository,
    CreateKey,
    CreateProject,
    CreateWorkspace,
    DeleteProject,
    GetProject,
    GetWorkspace,
    KeyRevoked,
    ListKeys,
    ListProjects,
    ListWorkspaces,
    RevokeKey,
)
from libs.common.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from libs.common.identifiers import KeyId, ProjectId
from libs.common.migrations import migrate
from libs.common.tables import CommonBase
from services.registry.service import MIGRATIONS
from services.registry.tables import RegistryBase
from tests.registry.worlds import ROOT, SERVICE, Team, World
from tests.support.databases import fresh_database

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_the_migrations_make_the_tables_of_the_models(kind: str, tmp_path: Path):
    def differences(connection: Connection) -> list[object]:
        ours = {table.name for base in (RegistryBase, CommonBase) for table in base.metadata.sorted_tables}
        options = {
            "compare_type": True,
            "include_name": lambda name, kind, _: kind != "table" or name in ours,
        }
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, RegistryBase.metadata)

    async with fresh_database(kind, "registry", tmp_path) as database:
        await migrate(database, MIGRATIONS)
        async with database.engine.connect() as connection:
            found = await connection.run_sync(differences)
    common = {table.name for table in CommonBase.metadata.sorted_tables}
    assert [each for each in found if not any(name in repr(each) for name in common)] == []


async def test_only_the_operator_makes_workspaces(world: World, team: Team):
    with pytest.raises(Forbidden):
        await team.ask(CreateWorkspace(name="mine"))
    made = await world.ask(CreateWorkspace(name="theirs", timezone="Europe/Berlin"), ROOT)
    assert (await world.ask(GetWorkspace(workspace="theirs"), ROOT)) == made


@pytest.mark.parametrize(
    ("name", "timezone"),
    [
        ("", "UTC"),
        ("A", "UTC"),
        ("-a", "UTC"),
        ("a-", "UTC"),
        ("a" * 65, "UTC"),
        ("settings", "UTC"),
        ("ok", "Mars/Crater"),
        ("ok", "../etc/passwd"),
        ("ok", ""),
    ],
)
async def test_names_and_time_zones_are_checked(world: World, name: str, timezone: str):
    with pytest.raises(Invalid) as caught:
        await world.ask(CreateWorkspace(name=name, timezone=timezone), ROOT)
    assert caught.value.fields[0].path == ("name" if name != "ok" else "timezone")


async def test_a_name_is_given_once(world: World, team: Team):
    await world.ask(CreateWorkspace(name="taken"), ROOT)
    with pytest.raises(Conflict, match="taken"):
        await world.ask(CreateWorkspace(name="taken"), ROOT)
    await team.ask(CreateProject(name="taken"))
    with pytest.raises(Conflict, match="taken"):
        await team.ask(CreateProject(name="taken"))
    await (await world.team()).ask(CreateProject(name="taken"))


async def test_a_key_opens_its_workspace_until_it_is_revoked(world: World, team: Team):
    found = await world.ask(Authenticate(digest=team.digest), SERVICE)
    assert (found.caller.kind, found.caller.workspace_id) == ("key", team.workspace)
    (key,) = (await team.ask(ListKeys())).items
    assert key.last_used_at is not None
    await team.ask(RevokeKey(key_id=key.id))
    await team.ask(RevokeKey(key_id=key.id))
    with pytest.raises(Unauthenticated):
        await world.ask(Authenticate(digest=team.digest), SERVICE)
    assert (await team.fact(KeyRevoked)).digest == team.digest
    assert len(team.facts(KeyRevoked)) == 1
    assert (await team.ask(ListKeys())).items[0].revoked_at is not None


async def test_only_services_look_keys_up(team: Team):
    with pytest.raises(Forbidden):
        await team.ask(Authenticate(digest=team.digest))


async def test_a_key_makes_keys_for_its_own_workspace_alone(world: World, team: Team):
    other = await world.team()
    key = CreateKey(workspace=other.workspace, key_id=KeyId("key_new"), digest="a" * 64, prefix="osm_new")
    with pytest.raises(NotFound):
        await team.ask(key)
    await other.ask(key)
    with pytest.raises(Conflict):
        await other.ask(key)


async def test_workspaces_are_seen_by_their_own_keys_and_the_operator(world: World, team: Team):
    other = await world.team()
    assert [w.id for w in (await team.ask(ListWorkspaces())).items] == [team.workspace]
    everyone = {w.id for w in (await world.ask(ListWorkspaces(limit=500), ROOT)).items}
    assert {team.workspace, other.workspace} <= everyone
    with pytest.raises(NotFound):
        await team.ask(GetWorkspace(workspace=other.workspace))


async def test_the_root_key_is_no_workspace(world: World):
    with pytest.raises(Unauthenticated, match="workspace's API key"):
        await world.ask(ListProjects(), ROOT)


async def test_projects_come_in_pages_newest_first(team: Team):
    made = [(await team.project()).id for _ in range(5)]
    first = await team.ask(ListProjects(limit=3))
    rest = await team.ask(ListProjects(limit=3, cursor=first.next_cursor))
    assert [p.id for p in [*first.items, *rest.items]] == sorted(made, reverse=True)
    assert rest.next_cursor is None


async def test_a_deleted_project_is_gone_and_its_name_free(team: Team):
    project = await team.ask(CreateProject(name="once"))
    await team.ask(DeleteProject(project_id=project.id))
    with pytest.raises(NotFound):
        await team.ask(GetProject(project_id=project.id))
    await team.ask(CreateProject(name="once"))


async def test_a_strangers_project_is_not_there(world: World, team: Team):
    project = await team.project()
    stranger = await world.team()
    for request in (
        GetProject(project_id=project.id),
        DeleteProject(project_id=project.id),
        SyncRepository(project_id=project.id),
        ConnectRepository(project_id=project.id, url="https://example.org/a"),
        GetProject(project_id=ProjectId("prj_none")),
    ):
        with pytest.raises(NotFound):
            await stranger.ask(request)


async def test_a_repository_address_is_checked(team: Team):
    project = await team.project()
    for url, branch in (
        ("ext::sh -c x", None),
        ("https://a:b@example.org/c", None),
        ("https://example.org/c", "-x"),
    ):
        with pytest.raises(Invalid):
            await team.ask(ConnectRepository(project_id=project.id, url=url, branch=branch))
    connected = await team.ask(
        ConnectRepository(project_id=project.id, url="https://example.org/c", branch="dev")
    )
    assert (connected.repository, connected.branch) == ("https://example.org/c", "dev")


async def test_an_idempotency_key_makes_one_project(team: Team):
    first = await team.ask(CreateProject(name="once"), idempotency_key="k")
    assert await team.ask(CreateProject(name="once"), idempotency_key="k") == first
