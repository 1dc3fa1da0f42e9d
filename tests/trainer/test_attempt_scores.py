"""Numbers and words about groups: a sample without a reward is counted, never read as 0."""

from __future__ import annotations

from libs.common.contracts.trajectories import Group, RewardComponent, Trajectory
from services.trainer.attempt.scores import rollout_metrics, validation_metrics, why_none_was_scored


def sample(reward: float | None, *, error: str | None = None, component: str | None = None) -> Trajectory:
    parts = [RewardComponent(name="compute_reward.f", value=reward, error=component)] if component else []
    return Trajectory(
        rollout_id="r",
        group_id="g",
        row_index=0,
        sample_index=0,
        status="failed" if error else "completed",
        error=error,
        reward=reward,
        components=parts,
    )


def group(*samples: Trajectory) -> Group:
    return Group(group_id="g", run_id="run_1", epoch=1, batch_id="b", row_index=0, trajectories=list(samples))


def test_the_mean_leaves_failures_out_and_counts_them() -> None:
    groups = [group(sample(1.0), sample(None, error="timed out")), group(sample(0.5))]
    assert validation_metrics(groups, asked=4) == {
        "eval/validation/reward": 0.75,
        "eval/validation/count": 2.0,
        "eval/validation/failed": 2.0,
    }


def test_without_rewards_there_is_no_mean() -> None:
    metrics = validation_metrics([group(sample(None, error="x"))], asked=1)
    assert "eval/validation/reward" not in metrics
    assert metrics["eval/validation/failed"] == 1.0


def test_groups_that_never_came_count_as_failed() -> None:
    assert rollout_metrics([group(sample(0.0))], asked=8) == {"rollout/scored": 1.0, "rollout/failed": 7.0}


def test_a_batch_with_one_reward_is_no_reason_to_fail() -> None:
    assert why_none_was_scored([group(sample(None, error="x"), sample(0.0))]) is None


def test_the_errors_of_a_batch_are_named_most_frequent_first() -> None:
    raised = sample(None, component="ZeroDivisionError: division by zero")
    groups = [group(raised, raised, sample(None, error="the rollout timed out"))]
    assert why_none_was_scored(groups) == (
        "2 × compute_reward.f: ZeroDivisionError: division by zero; 1 × the rollout timed out"
    )


def test_many_different_errors_are_cut_short() -> None:
    reasons = why_none_was_scored([group(*(sample(None, error=f"error {n}") for n in range(9)))])
    assert reasons is not None
    assert reasons.endswith("and 4 other errors")


def test_an_empty_batch_says_so() -> None:
    assert why_none_was_scored([]) == "no rollout came back in time"
