"""References to big things: messages carry these, the blob store the bytes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from libs.common.contracts.envelope import Contract

INLINE_LIMIT_BYTES = 64 * 1024
"""Larger parcels go to the blob store (design, section 3)."""


class BlobRef(Contract):
    """`key` in the blob store, `size` in bytes, `sha256` in hex of the content."""

    key: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class ArtifactFile(Contract):
    """One file of a folder kept in the blob store; `path` is relative, with forward slashes."""

    path: str
    blob: BlobRef


class ArtifactManifest(Contract):
    """A folder in the blob store. It is written last: a folder without its manifest does not exist."""

    kind: str = Field(description="base_model, checkpoint, model or export")
    files: list[ArtifactFile]
    attributes: dict[str, Any] = Field(default_factory=dict[str, Any])


ParcelT = TypeVar("ParcelT", bound=BaseModel)


class Parcel(Contract, Generic[ParcelT]):
    """A model that travels inline when small, else as a blob. Pack and open with `libs.common.parcels`."""

    inline: dict[str, Any] | None = None
    blob: BlobRef | None = None
