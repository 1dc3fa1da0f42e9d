"""Decisions about attempts: every pair of state and event, directives, refusals."""

from __future__ import annotations

import itertools
import typing

import pytest

from libs.common.errors import Conflict, NotFound
from services.trainer.domain import (
    LIVE,
    MOVES,
    AttemptEvent,
    AttemptState,
    DirectiveWord,
    heartbeat_pause_s,
    move,
    refusal,
    stronger,
)

STATES: tuple[AttemptState, ...] = typing.get_args(AttemptState)
EVENTS: tuple[AttemptEvent, ...] = typing.get_args(AttemptEvent)
DIRECTIVES: tuple[DirectiveWord, ...] = ("go", "pause", "cancel")


@pytest.mark.parametrize(("state", "event"), list(itertools.product(STATES, EVENTS)))
def test_every_pair_is_a_move_or_a_conflict(state: AttemptState, event: AttemptEvent) -> None:
    if (state, event) in MOVES:
        assert move(state, event) == MOVES[state, event]
    else:
        with pytest.raises(Conflict, match="must stop"):
            move(state, event)


@pytest.mark.parametrize("event", EVENTS)
def test_no_event_brings_a_dead_attempt_back(event: AttemptEvent) -> None:
    for state in set(STATES) - LIVE:
        assert MOVES.get((state, event)) not in LIVE


@pytest.mark.parametrize("state", STATES)
def test_every_state_can_be_fenced_off(state: AttemptState) -> None:
    assert move(state, "fence") not in LIVE


@pytest.mark.parametrize(("held", "wanted"), list(itertools.product(DIRECTIVES, DIRECTIVES)))
def test_the_stronger_directive_stays(held: DirectiveWord, wanted: DirectiveWord) -> None:
    assert DIRECTIVES.index(stronger(held, wanted)) == max(DIRECTIVES.index(held), DIRECTIVES.index(wanted))


def test_an_unknown_attempt_waits_and_an_older_one_stops() -> None:
    assert isinstance(refusal("run_1", 1, None), NotFound)
    assert isinstance(refusal("run_1", 2, 1), NotFound)
    assert isinstance(refusal("run_1", 1, 2), Conflict)


def test_a_lease_lives_through_several_lost_heartbeats() -> None:
    for ttl in (1.0, 10.0, 30.0, 600.0):
        assert heartbeat_pause_s(ttl) * 5 <= ttl
