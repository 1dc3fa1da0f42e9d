"""Following a run: what is counted as training, how it ends, and how it is cancelled."""

from __future__ import annotations

import httpx
import pytest

from examples.demo.following import TRAIN_REWARD, VALIDATION_REWARD, Following, RunFailed, Snapshot
from examples.demo.rest import Refused
from tests.demo.answers import Answers, curves, run_view

METRICS = curves(
    (VALIDATION_REWARD, 0, 0.125, "12:00:10"),
    (TRAIN_REWARD, 1, 0.25, "12:00:30"),
    (TRAIN_REWARD, 2, 0.5, "12:00:50"),
)
NO_ROLLOUTS = {"items": [], "next_cursor": None}


def look(answers: Answers) -> Snapshot:
    return Following(answers.rest(), run_view()).look()


def answers_of(**changes: object) -> Answers:
    answers = Answers()
    answers["GET /v1/runs/run_1"] = run_view(**changes)
    answers["GET /v1/runs/run_1/metrics"] = METRICS
    answers["GET /v1/runs/run_1/rollouts"] = NO_ROLLOUTS
    return answers


def test_training_is_counted_from_the_end_of_the_first_validation_to_the_last_step() -> None:
    snapshot = look(answers_of())
    assert snapshot.train_seconds == 40
    assert snapshot.samples_per_second == 2 * 64 / 40
    assert snapshot.seconds_left == 2 * 20


def test_the_last_validation_is_not_counted_as_training() -> None:
    answers = answers_of(step=2, total_steps=2)
    later = curves(
        (VALIDATION_REWARD, 0, 0.1, "12:00:10"),
        (TRAIN_REWARD, 2, 0.5, "12:00:50"),
        (VALIDATION_REWARD, 2, 0.9, "12:03:00"),
    )
    answers["GET /v1/runs/run_1/metrics"] = later
    assert look(answers).train_seconds == 40


def test_without_a_validation_training_begins_when_the_run_runs() -> None:
    answers = answers_of()
    answers["GET /v1/runs/run_1/metrics"] = curves((TRAIN_REWARD, 1, 0.5, "12:00:30"))
    assert look(answers).train_seconds == 30


def test_a_run_that_waits_has_no_curves_and_says_why() -> None:
    answers = answers_of(status="queued", started_at=None)
    answers["GET /v1/runs/run_1/queue"] = {"entry": {"position": 1, "reason": "no free slot"}}
    snapshot = look(answers)
    assert (snapshot.queue_reason, snapshot.rewards, snapshot.train_seconds) == ("no free slot", [], 0)
    assert snapshot.seconds_left is None


def test_a_run_without_metrics_yet_is_no_error() -> None:
    answers = answers_of()
    answers["GET /v1/runs/run_1/metrics"] = None
    assert look(answers).curves == {}


def test_the_last_snapshot_is_of_the_completed_run() -> None:
    answers = answers_of(status="completed")
    (snapshot,) = Following(answers.rest(), run_view()).snapshots()
    assert snapshot.run["status"] == "completed"


def test_a_failed_run_ends_with_its_error() -> None:
    answers = answers_of(status="failed", error="compute.spread raised ValueError")
    with pytest.raises(RunFailed, match=r"compute\.spread raised ValueError"):
        list(Following(answers.rest(), run_view()).snapshots())


def test_cancelling_waits_until_the_run_has_ended_and_holds_nothing() -> None:
    answers = Answers()
    statuses = iter(["running", "cancelled"])
    leases = iter([[{"state": "releasing"}], [{"state": "released"}]])
    answers["POST /v1/runs/run_1/cancel"] = run_view(status="running")
    answers["GET /v1/runs/run_1"] = lambda _: run_view(status=next(statuses))
    answers["GET /v1/nodes"] = lambda _: {"nodes": [], "queue": [], "leases": next(leases)}
    assert Following(answers.rest(), run_view()).cancel()["status"] == "cancelled"
    assert next(leases, None) is None


def test_a_run_that_ended_meanwhile_is_not_an_error_to_cancel() -> None:
    answers = Answers()
    answers["POST /v1/runs/run_1/cancel"] = httpx.Response(
        409, json={"title": "Conflict", "detail": "it has ended"}
    )
    answers["GET /v1/runs/run_1"] = run_view(status="completed")
    answers["GET /v1/nodes"] = {"nodes": [], "queue": [], "leases": []}
    assert Following(answers.rest(), run_view()).cancel()["status"] == "completed"
    answers["POST /v1/runs/run_1/cancel"] = httpx.Response(403, json={"title": "Not allowed", "detail": "no"})
    with pytest.raises(Refused, match="Not allowed"):
        Following(answers.rest(), run_view()).cancel()
