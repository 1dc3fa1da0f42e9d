"""The routes under `/v1`, one module a resource; `ROUTERS` is the order in which the documentation shows them."""

from services.gateway.routes import (
    base_models,
    checkpoints,
    datasets,
    dead_letters,
    events,
    jobs,
    keys,
    metrics,
    models,
    nodes,
    operations,
    page,
    projects,
    rollouts,
    runs,
    syncs,
    workspaces,
)

ROUTERS = tuple(
    module.router
    for module in (
        workspaces,
        keys,
        projects,
        syncs,
        datasets,
        base_models,
        runs,
        metrics,
        rollouts,
        checkpoints,
        models,
        jobs,
        events,
        nodes,
        dead_letters,
        operations,
        page,
    )
)

__all__ = ["ROUTERS"]
