"""Which facts users hear, and what of them: the table behind `GET /v1/events`.

A fact is either in `PUBLIC`, with the fields that are for our own services alone, or in `INTERNAL`. A test holds that
every registered fact is in one of the two, so a new one is shown or hidden by decision, not by accident.
"""

from __future__ import annotations

from collections.abc import Mapping

from libs.common.contracts import code, datasets, models, rollouts, runs, work, workspaces
from libs.common.contracts.envelope import TYPE_PREFIX, Envelope, Fact
from libs.common.errors import FieldError, Invalid

_NOTHING: frozenset[str] = frozenset()

PUBLIC: Mapping[type[Fact], frozenset[str]] = {
    workspaces.WorkspaceCreated: _NOTHING,
    workspaces.ProjectCreated: _NOTHING,
    workspaces.ProjectDeleted: _NOTHING,
    workspaces.KeyRevoked: frozenset({"digest"}),
    code.SyncRequested: _NOTHING,
    code.RepositorySynced: _NOTHING,
    code.RepositorySyncFailed: _NOTHING,
    datasets.DatasetUploaded: frozenset({"content"}),
    datasets.DatasetReady: _NOTHING,
    datasets.DatasetRejected: _NOTHING,
    models.BaseModelRegistered: _NOTHING,
    models.BaseModelReady: _NOTHING,
    models.BaseModelRejected: _NOTHING,
    models.ModelReady: _NOTHING,
    models.ModelExported: _NOTHING,
    models.JobFailed: _NOTHING,
    work.JobQueued: frozenset({"order"}),
    work.JobCancelled: _NOTHING,
    runs.RunCreated: _NOTHING,
    runs.RunQueued: frozenset({"order", "resume_from"}),
    runs.RunProvisioning: _NOTHING,
    runs.RunRunning: _NOTHING,
    runs.RunPausing: _NOTHING,
    runs.RunPaused: _NOTHING,
    runs.RunCompleted: _NOTHING,
    runs.RunFailed: _NOTHING,
    runs.RunCancelled: _NOTHING,
    work.AttemptStepped: _NOTHING,
    work.CheckpointSaved: frozenset({"manifest"}),
    rollouts.RolloutCompleted: _NOTHING,
    rollouts.RolloutFailed: _NOTHING,
}

INTERNAL: frozenset[type[Fact]] = frozenset(
    {
        # The talk between trainer, broker and rewards within a step: large, and told again by rollout.completed.
        rollouts.BatchRequested,
        rollouts.GroupSampled,
        rollouts.GroupScored,
        rollouts.GroupCompleted,
        # Addresses and orders of attempts; what they mean for a run is told by run.*.
        work.LeaseGranted,
        work.LeaseReleased,
        work.LeaseLost,
        work.AttemptStarted,
        work.AttemptEnded,
    }
)

_KEYS = frozenset(fact.KEY for fact in PUBLIC)
_HIDDEN = {fact.type_name(): hidden for fact, hidden in PUBLIC.items()}


def shown(envelope: Envelope) -> Envelope:
    """The envelope as users see it: without the fields that only our services can use."""
    hidden = _HIDDEN[envelope.type]
    data = {name: value for name, value in envelope.data.items() if name not in hidden}
    return envelope.model_copy(update={"data": data})


def keys_of(types: str | None) -> frozenset[str] | None:
    """The routing keys that `types=` asks for; None when it asks for all.

    Accepts a comma-separated list of `run.completed`, `osmosis.run.completed.v1` and `run.*`.

    Raises:
        Invalid: a name that no public event has.
    """
    if types is None or not types.strip():
        return None
    wanted: set[str] = set()
    unknown: list[str] = []
    for name in (part.strip() for part in types.split(",")):
        key = name.removeprefix(TYPE_PREFIX).rpartition(".v")[0] if name.startswith(TYPE_PREFIX) else name
        found = {known for known in _KEYS if known == key or _matches(known, key)}
        wanted |= found
        if not found:
            unknown.append(name)
    if unknown:
        raise Invalid(
            f"no events of type {', '.join(unknown)}",
            fields=[FieldError("query.types", f"known types: {', '.join(sorted(_KEYS))}")],
        )
    return frozenset(wanted)


def _matches(known: str, pattern: str) -> bool:
    return pattern.endswith(".*") and known.startswith(pattern[:-1])
