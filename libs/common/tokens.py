"""Tokens between our own processes, derived from the deployment's secret: nothing to store, nothing to hand out.

A token names what it opens (purpose, work, epoch), so the token of an older epoch opens nothing of a newer one.
"""

from __future__ import annotations

import hashlib
import hmac


def derive_token(secret: bytes, purpose: str, work_id: str, epoch: int) -> str:
    """HMAC-SHA-256 (RFC 2104) over purpose, work and epoch, hex."""
    text = "\0".join(("osmosis", purpose, work_id, str(epoch)))
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def token_matches(given: str | None, expected: str) -> bool:
    """Constant-time comparison; an absent token never matches."""
    return hmac.compare_digest((given or "").encode(), expected.encode())


def bearer(header: str | None) -> str | None:
    """The token of an `Authorization` header, None when it holds no bearer token."""
    scheme, _, token = (header or "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
