"""API keys as texts: made here, shown once, and known to every other part by their digest alone.

A key is `osm_<its id>_<256 random bits>`. The id part says which key it is in a log or a list; the rest cannot be
guessed, so a fast digest is enough: there is nothing to search through.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from libs.common.identifiers import KeyId, new_id

PREFIX = "osm_"
SECRET_BYTES = 32
LONGEST_KEY = 256
"""Characters; a longer text is no key of ours and is not looked up."""


@dataclass(frozen=True)
class NewKey:
    """A key at the only moment at which its text is known."""

    key_id: KeyId
    text: str
    prefix: str
    digest: str


def make_key(now: datetime, secret: Callable[[int], str] = secrets.token_urlsafe) -> NewKey:
    """A fresh key; `secret(n)` gives a text with n random bytes."""
    key_id = KeyId(new_id("key", now))
    prefix = PREFIX + key_id.removeprefix("key_")
    text = f"{prefix}_{secret(SECRET_BYTES)}"
    return NewKey(key_id, text, prefix, digest_of(text))


def digest_of(text: str) -> str:
    """SHA-256 of a key, hex: what the registry keeps."""
    return hashlib.sha256(text.encode()).hexdigest()


def looks_like_key(text: str) -> bool:
    """Whether a text is worth a question to the registry."""
    return text.startswith(PREFIX) and len(text) <= LONGEST_KEY
