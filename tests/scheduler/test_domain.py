"""The lease table, walked over every pair, and silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import get_args

import pytest

from services.scheduler.domain import (
    ACTIVE,
    FIRST_HEARTBEAT,
    MOVES,
    LeaseEvent,
    LeaseState,
    is_silent,
    move,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
TTL = timedelta(seconds=30)
STATES: tuple[LeaseState, ...] = get_args(LeaseState)
EVENTS: tuple[LeaseEvent, ...] = get_args(LeaseEvent)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(("state", "event"), list(product(STATES, EVENTS)))
def test_what_is_not_in_the_table_changes_nothing(state: LeaseState, event: LeaseEvent):
    assert move(state, event) == MOVES.get((state, event), state)
    if state not in ACTIVE:
        assert move(state, event) == state, "devices that were given back are never taken again by a move"


@pytest.mark.parametrize("events", list(product(EVENTS, repeat=4)))
def test_devices_come_back_once_and_a_lost_lease_was_never_released(events: tuple[LeaseEvent, ...]):
    state: LeaseState = "held"
    seen = [state]
    for event in events:
        state = move(state, event)
        seen.append(state)
    assert not {"released", "lost"} <= set(seen)
    given_back = [(before in ACTIVE, after in ACTIVE) for before, after in pairwise(seen)]
    assert given_back.count((True, False)) <= 1
    assert (False, True) not in given_back


def test_an_attempt_that_said_that_it_ended_is_never_lost():
    assert move(move("held", "end"), "lose") == "releasing"


@pytest.mark.parametrize(
    ("granted", "heartbeat", "hearing", "silent"),
    [
        (ago(500), ago(29), ago(500), False),
        (ago(500), ago(31), ago(500), True),
        (ago(500), ago(31), ago(5), False),
        (ago(500), ago(490), ago(31), True),
        (ago(FIRST_HEARTBEAT.total_seconds() - 1), None, ago(500), False),
        (ago(FIRST_HEARTBEAT.total_seconds() + 1), None, ago(500), True),
        (ago(FIRST_HEARTBEAT.total_seconds() + 1), None, ago(5), False),
    ],
)
def test_silence_counts_from_the_last_word_and_only_while_somebody_listens(
    granted: datetime, heartbeat: datetime | None, hearing: datetime, silent: bool
):
    assert is_silent(granted, heartbeat, NOW, TTL, hearing) is silent


def test_a_long_time_to_live_also_holds_before_the_first_heartbeat():
    assert not is_silent(ago(300), None, NOW, timedelta(seconds=600), ago(900))
