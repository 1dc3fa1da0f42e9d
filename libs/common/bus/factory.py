"""The bus that the settings name."""

from __future__ import annotations

from libs.common.bus import Bus
from libs.common.bus.local import LocalBus
from libs.common.clock import Clock
from libs.common.settings import Settings


def open_bus(settings: Settings, clock: Clock) -> Bus:
    """`local://` or `amqp://…`; not started yet.

    Raises:
        ValueError: another scheme.
    """
    if settings.embedded:
        return LocalBus(clock)
    if settings.bus_url.startswith(("amqp://", "amqps://")):
        from libs.common.bus.rabbitmq import RabbitBus

        return RabbitBus(settings.bus_url, clock, prefix=settings.bus_prefix)
    raise ValueError("OSMOSIS_BUS_URL: use local:// or amqp://user:password@host:port/vhost")
