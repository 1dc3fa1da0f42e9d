"""What an API key opens."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from libs.common.errors import Unauthenticated
from libs.common.identifiers import KeyId, WorkspaceId
from services.registry.keys import KnownKey, admit, should_touch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIGEST = hashlib.sha256(b"osm_x_y").hexdigest()
KEY = KnownKey(KeyId("key_1"), WorkspaceId("ws_1"), DIGEST, None, None)


def test_a_known_key_is_admitted():
    assert admit(DIGEST, KEY) == KEY


@pytest.mark.parametrize(
    ("digest", "known"), [(DIGEST, None), ("0" * 64, KEY), (DIGEST, replace(KEY, revoked_at=NOW)), ("é", KEY)]
)
def test_unknown_and_revoked_keys_are_refused_alike(digest: str, known: KnownKey | None):
    with pytest.raises(Unauthenticated, match="not known or was revoked"):
        admit(digest, known)


def test_last_use_is_written_once_a_minute():
    assert should_touch(KEY, NOW)
    used = replace(KEY, last_used_at=NOW)
    assert not should_touch(used, NOW + timedelta(seconds=59))
    assert should_touch(used, NOW + timedelta(seconds=60))
