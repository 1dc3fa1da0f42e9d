"""The states of a run: every pair of status and event, fencing, and the words of older clients."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.contracts.runs import TERMINAL, RunStatus
from services.registry.runs import MOVES, Progress, RunEvent, ask, hear, legacy_status, next_status
from services.registry.runs.progress import BY_ATTEMPT

STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)
USER_EVENTS: tuple[RunEvent, ...] = ("frozen", "pause_requested", "resume_requested", "cancel_requested")
LEASE_EVENTS: tuple[RunEvent, ...] = tuple(e for e in EVENTS if e not in USER_EVENTS and e != "gave_up")

# Rows: status. Columns: frozen, granted, started, completed, failed, cancelled, left paused, lost, gave up,
# and the user's pause, resume, cancel. A dot changes nothing.
EXPECTED = """
pending       queued .            .       .         .      .         .      .      .      .       .      cancelled
queued        .      provisioning .       .         .      .         .      .      .      .       .      cancelled
provisioning  .      .            running completed failed cancelled queued queued failed .       .      cancelled
running       .      .            .       completed failed cancelled queued queued failed pausing .      cancelled
pausing       .      .            .       completed failed cancelled paused paused .      .       .      cancelled
paused        .      .            .       .         .      .         .      .      .      .       queued cancelled
completed     .      .            .       .         .      .         .      .      .      .       .      .
failed        .      .            .       .         .      .         .      .      .      .       .      .
cancelled     .      .            .       .         .      .         .      .      .      .       .      .
"""


def test_every_pair_of_status_and_event_leads_where_the_design_says():
    rows = {line.split()[0]: line.split()[1:] for line in EXPECTED.strip().splitlines()}
    assert set(rows) == set(STATUSES)
    for status in STATUSES:
        for event, expected in zip(EVENTS, rows[status], strict=True):
            assert (next_status(status, event) or ".") == expected, (status, event)


def test_terminal_statuses_never_change():
    assert not [pair for pair in MOVES if pair[0] in TERMINAL]


def test_every_status_can_be_reached_and_left_for_an_end():
    reached = {"pending"} | set(MOVES.values())
    assert reached == set(STATUSES)
    for status in set(STATUSES) - TERMINAL:
        assert next_status(status, "cancel_requested") == "cancelled"


def running(epoch: int = 3) -> Progress:
    return Progress("running", epoch, attempt_over=False, attempts=epoch)


def statuses(progress: Progress, event: RunEvent, epoch: int, max_losses: int = 5) -> list[str]:
    return [move.after.status for move in hear(progress, event, epoch, max_losses=max_losses)]


def test_a_run_goes_its_whole_way():
    progress = Progress()
    for event in (
        "frozen",
        "lease_granted",
        "attempt_started",
        "pause_requested",
        "attempt_paused",
        "resume_requested",
    ):
        if event in USER_EVENTS:
            move = ask(progress, event)
            assert move is not None
        else:
            (move,) = hear(progress, event, progress.epoch + (event == "lease_granted"), max_losses=5)
        progress = move.after
    assert progress == Progress("queued", 1, attempt_over=True, attempts=1)


def test_a_late_completion_changes_nothing():
    lost = hear(running(), "lease_lost", 3, max_losses=5)[-1].after
    assert lost.status == "queued"
    assert statuses(lost, "attempt_completed", 3) == []
    again = hear(lost, "lease_granted", 4, max_losses=5)[-1].after
    assert statuses(again, "attempt_completed", 3) == []
    assert statuses(again, "lease_lost", 3) == []
    assert statuses(again, "attempt_started", 4) == ["running"]


def test_an_attempt_that_is_heard_before_its_lease_stands_for_it():
    queued = Progress("queued", 1, attempt_over=True, attempts=1)
    moves = hear(queued, "attempt_started", 2, max_losses=5)
    assert [move.event for move in moves] == ["lease_granted", "attempt_started"]
    assert moves[-1].after == Progress("running", 2, attempt_over=False, attempts=2)
    assert statuses(moves[-1].after, "lease_granted", 2) == []


def test_a_run_that_loses_its_lease_too_often_fails():
    progress = Progress("queued")
    for epoch in (1, 2, 3):
        progress = hear(progress, "lease_granted", epoch, max_losses=3)[-1].after
        progress = hear(progress, "lease_lost", epoch, max_losses=3)[-1].after
    assert progress.status == "failed"
    assert progress.losses == 3


def test_a_pause_is_no_loss():
    pausing = Progress("pausing", 1, attempt_over=False, attempts=1)
    assert hear(pausing, "attempt_paused", 1, max_losses=1)[-1].after.status == "paused"
    assert hear(pausing, "lease_lost", 1, max_losses=1)[-1].after.status == "paused"


def test_a_cancelled_run_still_hears_its_attempt_save_a_checkpoint_but_a_lost_one_does_not():
    cancelled = ask(running(), "cancel_requested")
    assert cancelled is not None
    assert cancelled.after.hears(3)
    assert not hear(running(), "lease_lost", 3, max_losses=5)[-1].after.hears(3)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 4)), max_size=30))
def test_whatever_comes_epochs_grow_and_ends_are_final(words: list[tuple[RunEvent, int]]):
    progress = Progress()
    for event, epoch in words:
        if event in USER_EVENTS:
            move = ask(progress, event)
            moves = [] if move is None else [move]
        elif event == "gave_up":
            continue
        else:
            moves = hear(progress, event, epoch, max_losses=3)
        for move in moves:
            assert progress.status not in TERMINAL
            assert next_status(progress.status, move.event) == move.after.status
            assert move.after.epoch >= progress.epoch
            assert move.after.epoch in (progress.epoch, epoch)
            if event in BY_ATTEMPT:
                assert epoch > progress.epoch or not progress.attempt_over
            progress = move.after
        assert progress.losses <= progress.attempts
        assert progress.attempt_over or progress.status not in ("queued", "paused", "pending")


@pytest.mark.parametrize("status", STATUSES)
def test_older_clients_get_words_that_they_know(status: RunStatus):
    known = {"pending", "running", "finished", "failed", "crashed", "stopped", "killed"}
    assert legacy_status(status, None) in known


def test_the_old_words_tell_a_crash_from_a_failure_and_a_stop_from_a_kill():
    assert legacy_status("failed", "attempt_failed") == "failed"
    assert legacy_status("failed", "gave_up") == "crashed"
    assert legacy_status("cancelled", "cancel_requested") == "stopped"
    assert legacy_status("cancelled", "attempt_cancelled") == "killed"
    assert legacy_status("completed", "attempt_completed") == "finished"
