"""Identifiers: NewTypes of text, made of a prefix that says the kind and a part that sorts by creation time.

Time and randomness are passed in, so a test decides both.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from typing import NewType

WorkspaceId = NewType("WorkspaceId", str)
ProjectId = NewType("ProjectId", str)
KeyId = NewType("KeyId", str)
ModelId = NewType("ModelId", str)
DatasetId = NewType("DatasetId", str)
SyncId = NewType("SyncId", str)
RunId = NewType("RunId", str)
CheckpointId = NewType("CheckpointId", str)
JobId = NewType("JobId", str)
WorkId = NewType("WorkId", str)
"""A run or a job: whatever the scheduler gives a lease to."""
BatchId = NewType("BatchId", str)
GroupId = NewType("GroupId", str)
RolloutId = NewType("RolloutId", str)
LeaseId = NewType("LeaseId", str)
NodeId = NewType("NodeId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: no letter that reads as a digit."""
_TIME_DIGITS = 10
_RANDOM_DIGITS = 12

RandomBits = Callable[[int], int]
"""`bits -> integer below 2**bits`."""


def _base32(value: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        value, digit = divmod(value, 32)
        text = _ALPHABET[digit] + text
    return text


def new_id(prefix: str, now: datetime, randbits: RandomBits = secrets.randbits) -> str:
    """`run_01jd…`: prefix, milliseconds since 1970 in 10 digits, 60 random bits in 12 digits."""
    milliseconds = int(now.timestamp() * 1000)
    return f"{prefix}_{_base32(milliseconds, _TIME_DIGITS)}{_base32(randbits(5 * _RANDOM_DIGITS), _RANDOM_DIGITS)}"
