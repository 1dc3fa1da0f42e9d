"""API keys. The text of a key is in the answer that made it, and never again anywhere."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from libs.common.contracts.workspaces import CreateKey, KeyPage, KeyView, ListKeys, RevokeKey
from libs.common.errors import Conflict
from libs.common.identifiers import WorkspaceId
from services.gateway.asking import Ask, Asker, Command
from services.gateway.keys import make_key
from services.gateway.parameters import Body, Cursor, KeyIn, Limit, WorkspaceIn

router = APIRouter(prefix="/v1", tags=["keys"])


class NewKeyBody(Body):
    """A key to make."""

    description: str = Field(default="", max_length=256, examples=["nightly training"])


class KeyWithText(KeyView):
    """A key at the only moment at which its text is told."""

    key: str = Field(description="the API key; keep it, it is not shown again")


async def _make(workspace: WorkspaceId, description: str, ask: Asker, response: Response) -> KeyWithText:
    made = make_key(ask.platform.clock.now())
    request = CreateKey(
        workspace=workspace,
        key_id=made.key_id,
        digest=made.digest,
        prefix=made.prefix,
        description=description,
    )
    try:
        view = await ask(request)
    except Conflict:
        if ask.idempotency_key is None:
            raise
        # Every call makes another text, and the first one's is kept nowhere: it cannot be given again.
        raise Conflict(
            "a key was made with this Idempotency-Key already, and its text was shown then;"
            " if the answer was lost, revoke that key and make another one with a new Idempotency-Key"
        ) from None
    response.headers["Cache-Control"] = "no-store"
    return KeyWithText(key=made.text, **view.model_dump())


@router.post("/workspaces/{workspace_id}/keys", status_code=201, summary="Make a workspace's first key")
async def create_first_key(
    workspace_id: WorkspaceIn, body: NewKeyBody, ask: Command, response: Response
) -> KeyWithText:
    """With the operator's key, for any workspace."""
    ask.as_operator()
    return await _make(workspace_id, body.description, ask, response)


@router.post("/keys", status_code=201, summary="Make a key")
async def create_key(body: NewKeyBody, ask: Command, response: Response) -> KeyWithText:
    """For the workspace of the calling key."""
    return await _make(ask.caller.workspace(), body.description, ask, response)


@router.get("/keys", summary="List keys")
async def list_keys(ask: Ask, limit: Limit = 50, cursor: Cursor = None) -> KeyPage:
    """Keys of the workspace, revoked ones too, without their texts."""
    return await ask(ListKeys(limit=limit, cursor=cursor))


@router.delete("/keys/{key_id}", status_code=204, summary="Revoke a key")
async def revoke_key(key_id: KeyIn, ask: Command) -> None:
    """From then on it opens nothing, and streams that were opened with it end."""
    await ask(RevokeKey(key_id=key_id))
