"""An S3 server over HTTP in this process, for tests: moto's."""

from __future__ import annotations

from collections.abc import Callable

from moto.server import ThreadedMotoServer


def start_moto() -> tuple[str, Callable[[], None]]:
    """Its address, and a function that stops it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}", server.stop
