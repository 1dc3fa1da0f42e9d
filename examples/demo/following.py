"""A run as it goes on: asked for every second, and cancelled cleanly when the user says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from examples.demo.rest import Json, Refused, Rest

ENDED = ("completed", "failed", "cancelled")
TRAIN_REWARD = "rollout/raw_reward"
VALIDATION_REWARD = "eval/validation/reward"
ASK_EVERY_S = 1.0
RELEASE_PATIENCE_S = 60.0


class RunFailed(Exception):
    """The run ended with an error, which is the message."""


@dataclass(frozen=True)
class Point:
    """A value at a step."""

    step: int
    value: float
    at: datetime


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    run: Json
    samples_per_step: int
    running_since: datetime | None
    curves: dict[str, list[Point]]
    queue_reason: str | None = None
    newest_rollout: Json | None = None
    seen_at: float = field(default_factory=time.monotonic)

    @property
    def rewards(self) -> list[Point]:
        """Mean training reward of every step."""
        return self.curves.get(TRAIN_REWARD, [])

    @property
    def validations(self) -> list[Point]:
        """Mean reward on the held-out rows, step 0 being the base model."""
        return self.curves.get(VALIDATION_REWARD, [])

    @property
    def train_seconds(self) -> float:
        """From the start of the first step to the end of the last: sampling, scoring and updates, no validation.

        The first step starts when the validation of the base model has ended, or the run is running.
        """
        if not self.rewards or self.running_since is None:
            return 0.0
        starts = [point.at for point in self.validations if point.step == 0]
        start = max([self.running_since, *starts])
        return (self.rewards[-1].at - start).total_seconds()

    @property
    def samples_per_second(self) -> float:
        """Rollouts that were sampled, scored and trained on, a second of training."""
        seconds = self.train_seconds
        return len(self.rewards) * self.samples_per_step / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """By the mean time of the last steps; None before the first."""
        if not self.rewards:
            return None
        left = int(self.run["total_steps"]) - self.rewards[-1].step
        return max(0.0, left * self.train_seconds / len(self.rewards))


class Following:
    """One run of one workspace."""

    def __init__(self, rest: Rest, run: Json) -> None:
        self._rest = rest
        self._id: str = run["id"]
        self._samples: int = run["config"]["training"]["global_batch_size"]

    def snapshots(self) -> Iterator[Snapshot]:
        """The run every second until it has ended; the last snapshot has its last point.

        Raises:
            RunFailed: it ended in another way than `completed`.
        """
        while True:
            snapshot = self.look()
            yield snapshot
            if snapshot.run["status"] in ENDED:
                break
            time.sleep(ASK_EVERY_S)
        if snapshot.run["status"] != "completed":
            raise RunFailed(
                f"the run is {snapshot.run['status']}: {snapshot.run['error'] or 'no reason given'}"
            )

    def look(self) -> Snapshot:
        """The run now."""
        run = self._rest.get(f"/v1/runs/{self._id}")
        waiting = run["status"] in ("pending", "queued", "provisioning")
        return Snapshot(
            run=run,
            samples_per_step=self._samples,
            running_since=_time(run["started_at"]),
            curves={} if waiting else self._curves(),
            queue_reason=self._queue_reason() if run["status"] == "queued" else None,
            newest_rollout=None if waiting else self._newest_rollout(),
        )

    def cancel(self) -> Json:
        """Cancel the run and wait until it has ended and what it held is free.

        Raises:
            TimeoutError: not within a minute.
        """
        try:
            self._rest.post(f"/v1/runs/{self._id}/cancel", {"reason": "Ctrl-C"})
        except Refused as refused:
            if refused.status != 409:
                raise
        run = self._rest.wait(
            f"/v1/runs/{self._id}", lambda seen: seen["status"] in ENDED, RELEASE_PATIENCE_S
        )
        self._rest.wait("/v1/nodes", _holds_nothing, RELEASE_PATIENCE_S)
        return run

    def _curves(self) -> dict[str, list[Point]]:
        try:
            metrics = self._rest.get(
                f"/v1/runs/{self._id}/metrics", keys=f"{TRAIN_REWARD},{VALIDATION_REWARD}"
            )
        except Refused as refused:
            if refused.status != 404:
                raise
            return {}
        return {series["key"]: [_point(point) for point in series["points"]] for series in metrics["series"]}

    def _queue_reason(self) -> str | None:
        entry = self._rest.get(f"/v1/runs/{self._id}/queue")["entry"]
        return entry["reason"] if entry else None

    def _newest_rollout(self) -> Json | None:
        page = self._rest.get(f"/v1/runs/{self._id}/rollouts", status="completed", limit=1)
        if not page["items"]:
            return None
        return self._rest.get(f"/v1/rollouts/{page['items'][0]['id']}")


def _holds_nothing(pool: Json) -> bool:
    return not any(lease["state"] in ("held", "releasing") for lease in pool["leases"])


def _point(point: Json) -> Point:
    at = _time(point["at"])
    assert at is not None
    return Point(int(point["step"]), float(point["value"]), at)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
