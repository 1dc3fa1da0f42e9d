"""What a known API key opens, and when its last use is worth a write.

Registry holds keys as SHA-256 digests alone. A slow, salted hash guards guessable passwords; a key has 256 random bits,
so nobody can search for the text behind a digest, and looking the digest up in an index says nothing about it through
time: whoever has no key cannot choose a digest's digits. What is compared after the look-up is compared in constant
time all the same.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from libs.common.errors import Unauthenticated
from libs.common.identifiers import KeyId, WorkspaceId

TOUCH_EVERY = timedelta(minutes=1)
"""Last use is shown to the minute: a write for every request would cost more than it tells."""


@dataclass(frozen=True)
class KnownKey:
    """A key as it is stored."""

    id: KeyId
    workspace_id: WorkspaceId
    digest: str
    last_used_at: datetime | None
    revoked_at: datetime | None


def admit(digest: str, known: KnownKey | None) -> KnownKey:
    """The key that a digest belongs to.

    Raises:
        Unauthenticated: it is unknown or revoked; the message is the same, so that nothing is learnt from it.
    """
    refused = Unauthenticated("the API key is not known or was revoked; make a new one in the workspace")
    if known is None or not hmac.compare_digest(digest.encode(), known.digest.encode()):
        raise refused
    if known.revoked_at is not None:
        raise refused
    return known


def should_touch(known: KnownKey, now: datetime) -> bool:
    """Whether the key's last use is to be written down."""
    return known.last_used_at is None or now - known.last_used_at >= TOUCH_EVERY
