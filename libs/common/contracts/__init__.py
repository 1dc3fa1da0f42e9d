"""What two services both need to know. Importing this package registers every fact and every request."""

from libs.common.contracts import (
    attempts,
    blobs,
    code,
    datasets,
    dead_letters,
    metrics,
    models,
    recipes,
    rollouts,
    runs,
    trajectories,
    work,
    workspaces,
)

__all__ = [
    "attempts",
    "blobs",
    "code",
    "datasets",
    "dead_letters",
    "metrics",
    "models",
    "recipes",
    "rollouts",
    "runs",
    "trajectories",
    "work",
    "workspaces",
]
