"""The public REST interface as the demonstration uses it: bearer key, JSON, problems as exceptions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

Json = dict[str, Any]

PATIENCE_S = 300.0
ASK_EVERY_S = 0.25


class Refused(Exception):
    """The platform answered with a problem."""

    def __init__(self, status: int, problem: Json) -> None:
        faults = "".join(f"\n  {fault['path']}: {fault['message']}" for fault in problem.get("errors", []))
        super().__init__(f"{status} {problem.get('title', '')}: {problem.get('detail', '')}{faults}")
        self.status = status


class Rest:
    """Calls with one API key."""

    def __init__(self, address: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(60, connect=5),
            # The platform is on this machine; a proxy of the environment has no part in it.
            trust_env=False,
            transport=transport,
        )

    def get(self, path: str, **parameters: Any) -> Json:
        """Read."""
        return self._json("GET", path, params=parameters)

    def post(self, path: str, body: Json | None = None) -> Json:
        """Change something, once: the Idempotency-Key makes a repeated call safe."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._json("POST", path, json=body or {}, headers=headers)

    def put(self, path: str, body: Json) -> Json:
        """Set something."""
        return self._json("PUT", path, json=body)

    def upload(self, path: str, content: bytes) -> Json:
        """Send a file."""
        return self._json("PUT", path, content=content)

    def download(self, path: str, target: Path) -> int:
        """Fetch a file; answers its size in bytes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with self._http.stream("GET", path) as answer, target.open("wb") as out:
            if answer.is_error:
                answer.read()
                self._check(answer)
            for part in answer.iter_bytes():
                size += out.write(part)
        return size

    def wait(self, path: str, done: Callable[[Json], bool], patience_s: float = PATIENCE_S) -> Json:
        """Read until `done`.

        Raises:
            TimeoutError: not within `patience_s` seconds.
        """
        deadline = time.monotonic() + patience_s
        while not done(seen := self.get(path)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is still {seen.get('status')} after {patience_s:.0f} s")
            time.sleep(ASK_EVERY_S)
        return seen

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _json(self, method: str, path: str, **arguments: Any) -> Json:
        answer = self._http.request(method, path, **arguments)
        self._check(answer)
        return answer.json() if answer.content else {}

    def _check(self, answer: httpx.Response) -> None:
        if not answer.is_error:
            return
        try:
            problem = answer.json()
        except ValueError:
            problem = {"detail": answer.text[:500]}
        raise Refused(answer.status_code, problem)
