"""What Prometheus scrapes."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.common.contracts.requests import Caller
from libs.common.errors import Forbidden
from tests.metrics.worlds import OWNER, World


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and label values; raises when the text is not Prometheus'."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_runs_at_work_and_how_far_they_are(world: World):
    await world.create("run_1")
    await world.create("run_2")
    await world.step(3, reward=0.5)
    assert samples(await world.exposition()) == {
        ("osmosis_active_runs",): 2,
        ("osmosis_run_step", "run_1"): 3,
        ("osmosis_run_step", "run_2"): 0,
        ("osmosis_run_reward", "run_1"): 0.5,
    }


async def test_a_run_that_ended_is_shown_no_more(world: World):
    await world.create()
    await world.step(3, reward=0.5)
    await world.complete()
    assert samples(await world.exposition()) == {("osmosis_active_runs",): 0}


async def test_a_resumed_run_shows_the_step_that_it_went_back_to(world: World):
    await world.create()
    await world.start(1)
    await world.step(5, reward=0.5)
    await world.start(2, from_step=2)
    assert samples(await world.exposition())["osmosis_run_step", "run_1"] == 2


async def test_a_validation_is_no_step(world: World):
    await world.create()
    await world.step(2, reward=0.5)
    await world.step(9, phase="validation", **{"eval/validation/reward": 0.9})
    found = samples(await world.exposition())
    assert (found["osmosis_run_step", "run_1"], found["osmosis_run_reward", "run_1"]) == (2, 0.5)


async def test_rollouts_are_counted_by_how_they_ended(world: World):
    async with world.units.begin() as uow:
        for status in ("completed", "failed", "completed"):
            await uow.store.count_rollout(status)
    found = samples(await world.exposition())
    assert found["osmosis_rollouts_total", "completed"] == 2
    assert found["osmosis_rollouts_total", "failed"] == 1


async def test_figures_of_the_platform_are_the_operator_s(world: World):
    with pytest.raises(Forbidden, match="root key"):
        await world.exposition(OWNER)
    assert await world.exposition(Caller(kind="service", name="gateway"))
