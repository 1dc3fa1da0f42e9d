"""The pool of machines that runs are placed on."""

from __future__ import annotations

from fastapi import APIRouter

from libs.common.contracts.work import ListNodes, Nodes
from services.gateway.asking import Ask

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@router.get("", summary="The pool as it stands")
async def list_nodes(ask: Ask) -> Nodes:
    """Machines and their free devices; leases and waiting work of the workspace alone."""
    return await ask(ListNodes())
