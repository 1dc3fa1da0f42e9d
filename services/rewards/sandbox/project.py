"""Whose code runs in a sandbox: one commit of one project, with the environment and secrets that it named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SandboxProject:
    """A checkout that no longer changes. Frozen and hashable: it is the key of pools.

    `checkout`: the folder of the commit, readable by everybody. `environment`: the site-packages of the project's
    own dependencies, or None for the packages that the platform allows. `secrets`: variables that are set before the
    project's modules are imported; never shown in a repr.
    """

    checkout: Path
    commit: str
    environment: Path | None = None
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
