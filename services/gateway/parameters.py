"""Parameters that many routes share, and the base of every body that users write."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict

from libs.common.identifiers import (
    CheckpointId,
    DatasetId,
    JobId,
    KeyId,
    ModelId,
    ProjectId,
    RolloutId,
    RunId,
    SyncId,
    WorkspaceId,
)


class Body(BaseModel):
    """An unknown field is an error, so that a typo never passes."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=False)


def _id(example: str, what: str) -> object:
    return Path(max_length=128, description=f"id of the {what}", examples=[example])


WorkspaceIn = Annotated[WorkspaceId, _id("ws_01jd3k8q5v9m2r7t4x6y8z", "workspace")]
KeyIn = Annotated[KeyId, _id("key_01jd3k8q5v9m2r7t4x6y8z", "key")]
ProjectIn = Annotated[ProjectId, _id("prj_01jd3k8q5v9m2r7t4x6y8z", "project")]
SyncIn = Annotated[SyncId, _id("sync_01jd3k8q5v9m2r7t4x6y8z", "sync")]
DatasetIn = Annotated[DatasetId, _id("ds_01jd3k8q5v9m2r7t4x6y8z", "dataset")]
ModelIn = Annotated[ModelId, _id("mdl_01jd3k8q5v9m2r7t4x6y8z", "model")]
RunIn = Annotated[RunId, _id("run_01jd3k8q5v9m2r7t4x6y8z", "run")]
CheckpointIn = Annotated[CheckpointId, _id("ckpt_01jd3k8q5v9m2r7t4x6y8z", "checkpoint")]
RolloutIn = Annotated[RolloutId, _id("ro_01jd3k8q5v9m2r7t4x6y8z", "rollout")]
JobIn = Annotated[JobId, _id("job_01jd3k8q5v9m2r7t4x6y8z", "job")]

Limit = Annotated[int, Query(ge=1, le=500, description="items on a page")]
Cursor = Annotated[
    str | None, Query(max_length=256, description="`next_cursor` of the page before; absent: the first page")
]
