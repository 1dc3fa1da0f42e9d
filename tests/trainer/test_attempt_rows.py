"""Which rows a step samples and which are held out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.attempt.batches import batch_order
from services.trainer.attempt.rows import batch_seed, held_out_rows, rows_of_step
from tests.trainer.worlds import recipe

SEEDS = st.integers(min_value=0, max_value=2**31 - 1)


@given(st.integers(1, 300), st.floats(0, 0.99), SEEDS, st.integers(1, 50))
def test_held_out_rows_are_never_trained_on(rows: int, share: float, seed: int, at_most: int) -> None:
    split = held_out_rows(rows, share, seed, at_most)
    assert sorted(split.training + split.held_out) == list(range(rows))
    assert split.training
    assert len(split.held_out) <= at_most
    if share > 0 and rows > 1:
        assert split.held_out


def test_a_share_holds_out_that_share() -> None:
    assert len(held_out_rows(200, 0.1, 0, 256).held_out) == 20


def test_the_seed_chooses_who_is_held_out() -> None:
    first, again, other = (held_out_rows(100, 0.2, seed, 256).held_out for seed in (1, 1, 2))
    assert first == again != other


@given(st.integers(1, 40), st.integers(1, 12), SEEDS)
def test_a_pass_takes_every_row_once(rows: int, per_step: int, seed: int) -> None:
    steps = -(-rows // per_step)
    for which_pass in range(3):
        taken: Counter[int] = Counter()
        for step in range(which_pass * steps + 1, (which_pass + 1) * steps + 1):
            chosen = rows_of_step(range(100, 100 + rows), per_step, step, seed)
            assert 1 <= len(chosen) <= per_step
            taken.update(chosen)
        assert taken == Counter(range(100, 100 + rows))


def test_passes_differ_in_order() -> None:
    first, second = (rows_of_step(range(50), 50, step, 3) for step in (1, 2))
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_step_of_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        rows_of_step((), 4, 1, 0)


def test_batches_have_seeds_of_their_own() -> None:
    seeds = {
        batch_seed(seed, phase, step) for seed in (0, 1) for phase in ("train", "x") for step in range(9)
    }
    assert len(seeds) == 36
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_batch_that_is_asked_for_again_is_the_same() -> None:
    first, again = (batch_order(recipe("run_1"), 2, "train", 7, (3, 1)) for _ in range(2))
    assert first == again
    assert first.batch_id == "batch_run_1_2_train_7"
    assert [spec.group_id for spec in first.groups] == ["group_run_1_2_train_7_3", "group_run_1_2_train_7_1"]


def test_a_validation_is_sampled_at_its_own_temperature_and_count() -> None:
    chosen = recipe("run_1", validation={"n_samples": 2, "temperature": 0.5})
    order = batch_order(chosen, 1, "validation", 0, (0,))
    assert (order.n_samples, order.sampling.temperature) == (2, 0.5)
    assert order.sampling.max_response_length == chosen.config.sampling.max_response_length
