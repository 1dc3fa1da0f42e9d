"""What Prometheus scrapes, in its text format. Labels are run ids of active runs and two statuses: bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from services.metrics.tables import RunRow


class _Rollouts(Collector):
    """Counts that the database keeps, so that no restart sets them back."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def collect(self) -> list[CounterMetricFamily]:
        """Rollouts by status."""
        family = CounterMetricFamily("osmosis_rollouts", "Rollouts that ended.", labels=["status"])
        for status, count in sorted(self._counts.items()):
            family.add_metric([status], count)
        return [family]


def exposition(runs: Sequence[RunRow], rollouts: Mapping[str, int]) -> str:
    """The whole text."""
    registry = CollectorRegistry()
    active = Gauge("osmosis_active_runs", "Runs at work.", registry=registry)
    step = Gauge("osmosis_run_step", "Steps that a run has done.", ["run"], registry=registry)
    reward = Gauge("osmosis_run_reward", "Training reward of a run's last step.", ["run"], registry=registry)
    active.set(len(runs))
    for run in runs:
        step.labels(run.run_id).set(run.step)
        if run.reward is not None:
            reward.labels(run.run_id).set(run.reward)
    registry.register(_Rollouts(rollouts))
    return generate_latest(registry).decode()
