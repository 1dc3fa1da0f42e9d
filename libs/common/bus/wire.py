"""Facts, requests and replies as bytes: JSON in UTF-8, of at most 16 MiB.

Both buses send these bytes, so what works in one process works across two: nothing mutable is shared, and a contract
that does not survive its JSON fails in the embedded column as well.
"""

from __future__ import annotations

from libs.common.contracts.envelope import Contract, Envelope
from libs.common.errors import TooLarge

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""RabbitMQ 4 takes no larger message as it comes; big things go to the blob store (design, section 3)."""


def encode(message: Contract) -> bytes:
    """The message as it travels.

    Raises:
        TooLarge: it is over `MAX_MESSAGE_BYTES`.
    """
    body = message.model_dump_json().encode()
    if len(body) > MAX_MESSAGE_BYTES:
        what = (
            f"{message.type} of {message.subject}"
            if isinstance(message, Envelope)
            else type(message).__name__
        )
        raise TooLarge(
            f"{what} has {len(body)} bytes, more than the {MAX_MESSAGE_BYTES} of a message;"
            " put the content into the blob store and send its reference"
        )
    return body
