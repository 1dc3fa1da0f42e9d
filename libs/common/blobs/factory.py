"""The blob store that the settings name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from libs.common.blobs import BlobStore
from libs.common.blobs.folder import FolderBlobs
from libs.common.settings import Settings


def open_blobs(settings: Settings) -> BlobStore:
    """`file:///folder` or `s3://bucket/prefix`.

    Raises:
        ValueError: another scheme.
    """
    address = urlsplit(settings.blobs)
    if address.scheme == "file":
        return FolderBlobs(Path(address.path))
    if address.scheme == "s3":
        from libs.common.blobs.s3 import S3Blobs

        return S3Blobs(address.netloc, address.path, settings.s3_endpoint)
    raise ValueError(f"OSMOSIS_BLOB_URL {settings.blobs!r}: use file:///folder or s3://bucket/prefix")
