"""A blob as an HTTP answer: whole or one range (RFC 9110, section 14), never more than a chunk in memory."""

from __future__ import annotations

import base64
import re
from pathlib import PurePosixPath
from urllib.parse import quote

from fastapi.responses import Response, StreamingResponse
from starlette.datastructures import Headers

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.errors import Unavailable
from services.gateway.problems import RangeNotSatisfiable

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


async def download(blobs: BlobStore, ref: BlobRef, path: str, headers: Headers) -> Response:
    """The content of `ref`, named like the last part of `path`.

    Raises:
        Unavailable: the blob is gone.
        RangeNotSatisfiable: the range begins after its end.
    """
    etag = f'"{ref.sha256}"'
    about = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(PurePosixPath(path).name)}",
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(ref.sha256)).decode()}:",
    }
    if etag in [tag.strip() for tag in headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=about)
    # Once the answer has begun nothing can be said any more, so what can be known is asked before.
    if await blobs.stat(ref.key) is None:
        raise Unavailable(f"the content of {path} is missing in the blob store")
    wanted = None if headers.get("if-range", etag) != etag else wanted_range(headers.get("range"), ref.size)
    start, stop = wanted or (0, ref.size)
    about["Content-Length"] = str(stop - start)
    if wanted is not None:
        about["Content-Range"] = f"bytes {start}-{stop - 1}/{ref.size}"
    return StreamingResponse(
        blobs.read(ref.key, start, stop),
        status_code=200 if wanted is None else 206,
        media_type="application/octet-stream",
        headers=about,
    )


def wanted_range(header: str | None, size: int) -> tuple[int, int] | None:
    """`start, stop` (exclusive) of a single range; None where the whole content answers: no range, or several.

    Raises:
        RangeNotSatisfiable: it begins after the end.
    """
    found = _RANGE.fullmatch((header or "").strip())
    if found is None or found[1] == found[2] == "":
        return None
    first, last = found[1], found[2]
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start == stop:
        raise RangeNotSatisfiable(f"the file has {size} bytes; the range begins after its end")
    return start, stop
