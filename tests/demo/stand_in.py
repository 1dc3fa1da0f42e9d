"""A platform of nothing but answers: what `python -m services` is in the tests of the demonstration's command line.

It keeps its address and the operator's key where the platform keeps them, and notes every call below its data folder.
A run of it goes one step on at each look and never ends by itself.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path(os.environ["OSMOSIS_DATA_DIR"])
RUN: dict[str, Any] = {
    "id": "run_1",
    "name": "additions",
    "status": "running",
    "step": 0,
    "total_steps": 1000,
    "error": None,
    "started_at": "2026-12-01T12:00:00+00:00",
    "config": {"training": {"global_batch_size": 64}},
}
HELD = {"looks": 0}
ANSWERS: list[tuple[str, Any]] = [
    (r"GET /ready", {"bus": "ok"}),
    (r"POST /v1/workspaces", {"id": "ws_1"}),
    (r"POST /v1/workspaces/ws_1/keys", {"key": "osm_new"}),
    (r"POST /v1/(projects|base-models|datasets)", {"id": "new_1"}),
    (r"POST /v1/projects/new_1/syncs", {"id": "sync_1"}),
    (r"POST /v1/projects/new_1/runs", RUN),
    (r"PUT .*", {"id": "new_1"}),
    (r"GET /v1/projects/new_1/syncs/sync_1", {"status": "success"}),
    (r"GET /v1/datasets/new_1", {"status": "uploaded"}),
    (r"GET /v1/base-models/new_1", {"status": "ready"}),
    (r"GET /v1/runs/run_1/metrics", {"series": []}),
    (r"GET /v1/runs/run_1/rollouts", {"items": [], "next_cursor": None}),
]


class Gateway(BaseHTTPRequestHandler):
    """Answers by table."""

    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        """Any method."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        call = f"{self.command} {self.path.partition('?')[0]}"
        with (DATA / "calls.txt").open("a") as calls:
            calls.write(call + "\n")
        body = json.dumps(answer(call)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


def answer(call: str) -> Any:
    """The answer to a call; a run goes on, and what a cancelled run holds is free after a while."""
    if call == "GET /v1/runs/run_1":
        RUN["step"] += RUN["status"] == "running"
        return RUN
    if call == "POST /v1/runs/run_1/cancel":
        RUN["status"] = "cancelled"
        return RUN
    if call == "GET /v1/nodes":
        HELD["looks"] += 1
        return {"leases": [{"state": "releasing" if HELD["looks"] < 3 else "released"}]}
    return next(value for pattern, value in ANSWERS if re.fullmatch(pattern, call))


def main() -> None:
    """Serve until told to stop."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    (DATA / "run").mkdir(parents=True)
    (DATA / "root.key").write_text("osm_root_x")
    (DATA / "run" / "gateway.url").write_text(f"http://127.0.0.1:{server.server_port}\n")
    server.serve_forever()
    (DATA / "stopped").touch()
    sys.exit(0)


main()
