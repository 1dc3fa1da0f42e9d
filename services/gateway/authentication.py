"""Who calls: an API key in, a `Caller` out.

Guaranteed: the operator's key is compared in constant time; a key's text stays in this process; what the registry said
of a key is believed for `BELIEVE_FOR` at most, and for no longer than until its revocation is heard.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from libs.common.contracts.requests import Caller
from libs.common.contracts.workspaces import Authenticate
from libs.common.errors import Unauthenticated
from libs.common.identifiers import KeyId
from libs.common.platform import Platform, as_service
from services.gateway.keys import digest_of, looks_like_key

BELIEVE_FOR = timedelta(seconds=5)
REMEMBER_REVOKED = timedelta(seconds=60)
"""Longer than any answer of the registry can be on its way, so that a late one does not bring a revoked key back."""
MOST_CALLERS = 10_000

_ASK = "send your API key as 'Authorization: Bearer osm_…'"


@dataclass(frozen=True)
class _Known:
    caller: Caller
    until: datetime


class Authenticator:
    """Looks keys up and remembers them for a few seconds."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._operator = hashlib.sha256(platform.settings.operator_key.encode()).digest()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._revoked: dict[str, datetime] = {}

    async def caller(self, token: str | None) -> Caller:
        """The caller that a bearer token stands for.

        Raises:
            Unauthenticated: no token, or one that opens nothing.
            Unavailable: the registry did not answer.
        """
        if token is None:
            raise Unauthenticated(f"no API key: {_ASK}")
        if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._operator):
            return Caller(kind="root", name="root")
        if not looks_like_key(token):
            raise Unauthenticated(f"this is no API key of Osmosis: {_ASK}")
        digest = digest_of(token)
        known = self._known.get(digest)
        if known is not None and known.until > self._platform.clock.now():
            return known.caller
        reply = await self._platform.ask(Authenticate(digest=digest), as_service("gateway"))
        self._remember(digest, reply.caller)
        return reply.caller

    def forget(self, key_id: KeyId) -> None:
        """A key was revoked: the next call with it is looked up again."""
        now = self._platform.clock.now()
        self._revoked = {key: at for key, at in self._revoked.items() if at > now - REMEMBER_REVOKED}
        self._revoked[key_id] = now
        for digest in [digest for digest, known in self._known.items() if known.caller.key_id == key_id]:
            del self._known[digest]

    def _remember(self, digest: str, caller: Caller) -> None:
        if caller.key_id in self._revoked:
            return
        self._known[digest] = _Known(caller, self._platform.clock.now() + BELIEVE_FOR)
        self._known.move_to_end(digest)
        while len(self._known) > MOST_CALLERS:
            self._known.popitem(last=False)
