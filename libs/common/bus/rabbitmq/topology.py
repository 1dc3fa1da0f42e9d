"""What stands on the broker, and under which names. Declaring it again changes nothing.

| thing | name |
|---|---|
| topic exchange of facts | `osmosis.events` |
| work queue, quorum | `osmosis.<queue>` |
| its delays, one a wait of the retry policy; they let facts fall back into the work queue | `osmosis.<queue>.retry.<ms>` |
| where the broker puts a fact that ended its consumer `DELIVERY_LIMIT` times | `osmosis.<queue>.dead` |
| requests to an address, gone when nobody has served it for a minute | `osmosis.requests.<address>` |

The prefix of the settings stands before each. Dead-lettering is at-least-once: the broker forgets a fact in one queue
when the next has it on disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import ChannelPreconditionFailed
from pamqp.common import FieldValue

from libs.common.bus import EVENTS_EXCHANGE, QueueSpec

DELIVERY_LIMIT = 20
"""Returns to the queue, each by a consumer that ended without a word, before the broker sets a fact aside."""
REQUEST_QUEUE_EXPIRES_MS = 60_000
"""Long enough for a service to restart: a question that waits for it is then answered, not lost."""


@dataclass(frozen=True)
class Names:
    """Names on the broker, all with the prefix of this deployment."""

    prefix: str

    @property
    def events(self) -> str:
        """The exchange of facts."""
        return f"{self.prefix}{EVENTS_EXCHANGE}"

    def queue(self, spec_name: str) -> str:
        """A work queue."""
        return f"{self.prefix}osmosis.{spec_name}"

    def dead(self, spec_name: str) -> str:
        """Where facts go that end their consumer."""
        return f"{self.queue(spec_name)}.dead"

    def retry(self, spec_name: str, delay_s: float) -> str:
        """Where facts wait for `delay_s` seconds."""
        return f"{self.queue(spec_name)}.retry.{milliseconds(delay_s)}"

    def requests(self, address: str) -> str:
        """The requests to an address."""
        return f"{self.prefix}osmosis.requests.{address}"

    def of_queue(self, spec: QueueSpec) -> list[str]:
        """Every queue that stands for a spec."""
        delays = [] if spec.ordered else [self.retry(spec.name, delay) for delay in spec.retry.delays_s]
        return [self.queue(spec.name), self.dead(spec.name), *delays]


class QueueDiffers(RuntimeError):
    """A queue of this name stands on the broker with other arguments, from another version or another program."""


def milliseconds(seconds: float) -> int:
    """At least one: a delay of none would make a queue that drops what comes."""
    return max(1, round(seconds * 1000))


async def declare_exchange(channel: AbstractChannel, names: Names) -> None:
    """The exchange of facts."""
    await channel.declare_exchange(names.events, "topic", durable=True)


async def declare_queue(channel: AbstractChannel, names: Names, spec: QueueSpec) -> None:
    """A work queue with its bindings, its delays and its dead queue.

    Raises:
        QueueDiffers: it stands there with other arguments.
    """
    try:
        await _declare(channel, names.dead(spec.name), {})
        arguments: dict[str, FieldValue] = {
            "x-delivery-limit": DELIVERY_LIMIT,
            **_falling_into(names.dead(spec.name)),
        }
        if spec.ordered:
            arguments["x-single-active-consumer"] = True
        else:
            for delay in spec.retry.delays_s:
                back = _falling_into(names.queue(spec.name))
                ttl = {"x-message-ttl": milliseconds(delay)}
                await _declare(channel, names.retry(spec.name, delay), {**back, **ttl})
        await _declare(channel, names.queue(spec.name), arguments)
        for binding in spec.bindings:
            await _bind(channel, names, spec, binding)
    except ChannelPreconditionFailed as error:
        raise QueueDiffers(
            f"queue {names.queue(spec.name)} stands on the broker with other arguments ({error});"
            " let it run empty and delete it, then start again"
        ) from None


async def declare_requests(channel: AbstractChannel, names: Names, address: str) -> str:
    """The queue of an address; answers its name.

    A quorum queue as well: it costs a request 0.7 ms, and an address can be served while a node of the broker is down.
    """
    name = names.requests(address)
    await _declare(channel, name, {"x-expires": REQUEST_QUEUE_EXPIRES_MS})
    return name


async def _declare(channel: AbstractChannel, name: str, arguments: dict[str, FieldValue]) -> None:
    await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})


async def _bind(channel: AbstractChannel, names: Names, spec: QueueSpec, binding: str) -> None:
    queue = await channel.get_queue(names.queue(spec.name), ensure=False)
    await queue.bind(names.events, binding)


def _falling_into(queue: str) -> dict[str, FieldValue]:
    return {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once",
        # Without a length limit nothing is ever refused; the strategy asks for this overflow behaviour.
        "x-overflow": "reject-publish",
    }
