"""Blobs in S3 or a store that speaks its protocol, by boto3 in threads.

Large content goes up in parts that carry SHA-256 checksums, so the store refuses a damaged part; the digest of the
whole is kept as the object's metadata where it is known before the first part is sent (a file, bytes, anything that
fits one part). An upload that fails is aborted: nothing is left under the key.
"""

# boto3 has no types: it is called in this module alone.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import base64
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from libs.common.blobs import (
    CHUNK_BYTES,
    BlobDamaged,
    BlobMissing,
    check_key,
    check_prefix,
    check_whole,
)
from libs.common.blobs.folder import file_digest, in_thread
from libs.common.contracts.blobs import BlobRef
from libs.common.errors import TooLarge

_log = structlog.get_logger(__name__)
PART_BYTES = 16 * 1024 * 1024
"""S3 takes at most 10,000 parts: 160 GB a blob."""
_THREADS = 16
_DELETED_AT_ONCE = 1000
"""The most that S3 takes in one call."""
_DIGEST = "sha256"
ResultT = TypeVar("ResultT")


class S3Blobs:
    """The blob store of a deployment. Credentials come the way boto3 finds them (environment, role, file)."""

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="s3")
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            config=Config(
                retries={"mode": "adaptive", "max_attempts": 5},
                max_pool_connections=_THREADS,
                connect_timeout=10,
                read_timeout=60,
                # Our own SHA-256 go along; not every store of this protocol knows the checksums that boto3 adds.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )

    async def put_bytes(self, key: str, data: bytes) -> BlobRef:
        """Store bytes under a key."""

        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(data), PART_BYTES):
                yield data[start : start + PART_BYTES]

        return await self._put(key, parts(), len(data), hashlib.sha256(data).hexdigest())

    async def put_file(self, key: str, path: Path) -> BlobRef:
        """Store a file under a key. It is read twice: its digest goes ahead of it.

        Raises:
            BlobDamaged: it changed meanwhile; nothing is stored.
        """
        size = (await asyncio.to_thread(path.stat)).st_size
        sha256 = await asyncio.to_thread(file_digest, path)

        async def chunks() -> AsyncIterator[bytes]:
            with await asyncio.to_thread(path.open, "rb") as source:
                while chunk := await asyncio.to_thread(source.read, CHUNK_BYTES):
                    yield chunk

        return await self._put(key, chunks(), size, sha256)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, limit: int) -> BlobRef:
        """Store what comes: in one call when it is small, else in parts."""
        return await self._put(key, chunks, limit, None)

    async def _put(self, key: str, chunks: AsyncIterator[bytes], limit: int, sha256: str | None) -> BlobRef:
        upload = _Upload(self, self._name(key), sha256)
        digest, size, part = hashlib.sha256(), 0, bytearray()
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise TooLarge(f"more than {limit} bytes came; send a smaller file")
                digest.update(chunk)
                part += chunk
                while len(part) > PART_BYTES:
                    await upload.add(bytes(part[:PART_BYTES]))
                    del part[:PART_BYTES]
            if sha256 not in (None, digest.hexdigest()):
                raise BlobDamaged(f"what is stored as {key} changed while it was read; store it again")
            await upload.finish(bytes(part), digest.hexdigest())
        except BaseException:
            await asyncio.shield(upload.abort())
            raise
        return BlobRef(key=key, size=size, sha256=digest.hexdigest())

    async def get_bytes(self, ref: BlobRef, *, limit: int = 64 * 1024 * 1024) -> bytes:
        """The whole content, checked."""
        if ref.size > limit:
            raise TooLarge(f"{ref.key} has {ref.size} bytes, more than the {limit} that are read at once")
        data = bytearray()
        async for chunk in self._read_to_size(ref):
            data += chunk
        check_whole(ref, len(data), hashlib.sha256(data).hexdigest())
        return bytes(data)

    async def _read_to_size(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """The content up to the chunk that is more than the reference says."""
        size = 0
        async for chunk in self.read(ref.key):
            size += len(chunk)
            yield chunk
            if size > ref.size:
                return

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """A range in chunks."""
        if stop is not None and stop <= start:
            return
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Key": self._name(key)}
        if start or stop is not None:
            arguments["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        try:
            body = (await self.run(lambda: self._client.get_object(**arguments)))["Body"]
        except ClientError as error:
            if _code(error) == "InvalidRange":
                return
            raise _missing(error, key) from None
        try:
            while chunk := await self.run(lambda: cast("bytes", body.read(CHUNK_BYTES))):
                yield chunk
        finally:
            body.close()

    async def fetch(self, ref: BlobRef, path: Path) -> None:
        """The content as a file, checked."""
        await in_thread(partial(path.parent.mkdir, parents=True, exist_ok=True))
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        digest, size = hashlib.sha256(), 0
        try:
            with await in_thread(temporary.open, "wb") as target:
                async for chunk in self._read_to_size(ref):
                    digest.update(chunk)
                    size += len(chunk)
                    await in_thread(target.write, chunk)
            check_whole(ref, size, digest.hexdigest())
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)

    async def stat(self, key: str) -> BlobRef | None:
        """What lies under a key. What came as a stream of several parts is read to the end for its digest."""
        name = self._name(key)
        try:
            head = await self.run(lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        except ClientError as error:
            if _code(error) in ("404", "NoSuchKey", "NotFound"):
                return None
            raise
        sha256 = head["Metadata"].get(_DIGEST)
        if sha256 is None:
            digest = hashlib.sha256()
            async for chunk in self.read(key):
                digest.update(chunk)
            sha256 = digest.hexdigest()
        return BlobRef(key=key, size=head["ContentLength"], sha256=sha256)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix."""
        token: str | None = None
        while True:
            more = {"ContinuationToken": token} if token else {}
            page = await self.run(
                lambda more=more: self._client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix + prefix, **more
                )
            )
            for item in page.get("Contents", ()):
                yield str(item["Key"]).removeprefix(self._prefix)
            token = page.get("NextContinuationToken")
            if token is None:
                return

    async def delete(self, key: str) -> None:
        """Forget a key."""
        name = self._name(key)
        await self.run(lambda: self._client.delete_object(Bucket=self._bucket, Key=name))

    async def delete_prefix(self, prefix: str) -> None:
        """Forget every key that begins so."""
        keys = [key async for key in self.list(check_prefix(prefix))]
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            await self.run(partial(self._delete_all, keys[start : start + _DELETED_AT_ONCE]))

    def _delete_all(self, keys: Sequence[str]) -> None:
        names = [{"Key": self._name(key)} for key in keys]
        answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": names, "Quiet": True})
        for refused in answer.get("Errors", ()):
            raise OSError(f"{refused['Key']} could not be deleted: {refused['Code']}")

    async def ping(self) -> None:
        """Raises when the bucket does not answer."""
        await self.run(lambda: self._client.head_bucket(Bucket=self._bucket))

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    @property
    def client(self) -> Any:
        """boto3's client, for the parts of an upload."""
        return self._client

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self._bucket

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        """A blocking call in the store's own threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class _Upload:
    """One upload: a single put, or a multipart upload from the first full part on."""

    def __init__(self, store: S3Blobs, name: str, sha256: str | None) -> None:
        self._store = store
        self._metadata = {_DIGEST: sha256} if sha256 else {}
        self._where = {"Bucket": store.bucket, "Key": name}
        self._id: str | None = None
        self._parts: list[dict[str, Any]] = []

    async def add(self, part: bytes) -> None:
        """Send a part with its checksum."""
        client, where = self._store.client, self._where
        if self._id is None:
            begun = await self._store.run(
                lambda: client.create_multipart_upload(
                    **where, Metadata=self._metadata, ChecksumAlgorithm="SHA256"
                )
            )
            self._id = str(begun["UploadId"])
        number, checksum = len(self._parts) + 1, base64.b64encode(hashlib.sha256(part).digest()).decode()
        upload_id = self._id
        sent = await self._store.run(
            lambda: client.upload_part(
                **where, UploadId=upload_id, PartNumber=number, Body=part, ChecksumSHA256=checksum
            )
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumSHA256": checksum})

    async def finish(self, last: bytes, sha256: str) -> None:
        """Make the content appear under its key."""
        client, where, metadata = self._store.client, self._where, {_DIGEST: sha256}
        if self._id is None:
            checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
            await self._store.run(
                lambda: client.put_object(**where, Body=last, Metadata=metadata, ChecksumSHA256=checksum)
            )
            return
        if last:
            await self.add(last)
        upload_id = self._id
        await self._store.run(
            lambda: client.complete_multipart_upload(
                **where, UploadId=upload_id, MultipartUpload={"Parts": self._parts}
            )
        )
        self._id = None

    async def abort(self) -> None:
        """Leave nothing behind, as far as the store can be reached; it is called on the way of another error."""
        if self._id is None:
            return
        upload_id, client, where = self._id, self._store.client, self._where
        try:
            await self._store.run(lambda: client.abort_multipart_upload(**where, UploadId=upload_id))
        except (BotoCoreError, ClientError) as error:
            _log.warning(
                "parts of an upload may be left in the blob store", key=where["Key"], error=str(error)
            )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _missing(error: ClientError, key: str) -> Exception:
    return BlobMissing(f"no blob {key}") if _code(error) in ("404", "NoSuchKey", "NotFound") else error
