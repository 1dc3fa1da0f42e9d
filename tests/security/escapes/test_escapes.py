"""Every way out of `attempts.py` is closed: no attempt gets what it wants, and the next call is right."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.rewards.domain.inputs import FunctionRef, RewardInput
from services.rewards.domain.verdicts import RewardVerdict
from services.rewards.pools import SandboxPools
from services.rewards.sandbox import Launcher, Limits, SandboxProject

ATTEMPTS = Path(__file__).with_name("attempts.py")
LIMITS = Limits(wall_s=5, cpu_s=5)
NAMES = [
    node.name
    for node in ast.parse(ATTEMPTS.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != "fine"
]


@pytest.fixture
async def pools(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxPools]:
    """A service that has secrets to lose."""
    monkeypatch.setenv("OSMOSIS_SECRET_KEY", "a secret of the service")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    launcher = Launcher("bubblewrap")
    made = SandboxPools(launcher, workers=1)
    yield made
    await made.aclose()
    launcher.close()


@pytest.fixture
def project(tmp_path: Path) -> SandboxProject:
    checkout = tmp_path / "checkout"
    (checkout / "reward_fn").mkdir(parents=True)
    (checkout / "reward_fn" / "attempts.py").write_text(ATTEMPTS.read_text())
    return SandboxProject(checkout, "c0ffee", secrets=(("JUDGE_KEY", "the project's own"),))


async def tried(pools: SandboxPools, project: SandboxProject, *names: str) -> list[RewardVerdict]:
    functions = [FunctionRef(name, "reward_fn/attempts.py", name) for name in names]
    [verdicts] = await pools.call_rewards(project, functions, [RewardInput("s", [], "7")], LIMITS)
    return verdicts


@pytest.mark.parametrize("name", NAMES)
async def test_an_attempt_is_refused_and_the_next_call_is_right(
    pools: SandboxPools, project: SandboxProject, name: str
) -> None:
    attempt, after = await tried(pools, project, name, "fine")
    assert attempt.value in (0.0, None), f"{name} got out: {attempt.output}"
    assert attempt.error_kind != "import", attempt.error
    assert after.value == 0.5, after.error


async def test_a_call_cannot_answer_for_another(pools: SandboxPools, project: SandboxProject) -> None:
    """Whatever a call writes wherever it can, the verdicts beside it are those of their own functions."""
    before, *_, after = await tried(
        pools,
        project,
        "fine",
        "forge_a_verdict_on_the_services_socket",
        "write_a_pickle_into_every_pipe",
        "write_deep_json_into_every_pipe",
        "fine",
    )
    assert (before.value, after.value) == (0.5, 0.5)


async def test_a_pool_does_not_see_the_files_of_another(pools: SandboxPools, tmp_path: Path) -> None:
    projects: list[SandboxProject] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "reward_fn").mkdir(parents=True)
        (folder / f"{name}.txt").write_text(name)
        (folder / "reward_fn" / "f.py").write_text(
            "import os\n"
            "def f(solution_str, ground_truth, extra_info):\n"
            "    open('/tmp/mine', 'w').write('x')\n"
            "    seen = [name for folder, _, names in os.walk('/') if not folder.startswith(('/proc', '/usr'))\n"
            "            for name in names if name in ('one.txt', 'two.txt', 'mine')]\n"
            "    print(sorted(seen))\n"
            "    return 1.0\n"
        )
        projects.append(SandboxProject(folder, name))
    ref = FunctionRef("f.f", "reward_fn/f.py", "f")
    for project in projects:
        [[verdict]] = await pools.call_rewards(project, [ref], [RewardInput("s", [], "7")], LIMITS)
        assert verdict.output == f"['mine', '{project.commit}.txt']\n"


async def test_a_module_that_poisons_json_harms_its_own_project_alone(
    pools: SandboxPools, project: SandboxProject, tmp_path: Path
) -> None:
    folder = tmp_path / "poison"
    (folder / "reward_fn").mkdir(parents=True)
    (folder / "reward_fn" / "p.py").write_text(
        "import json\njson.dumps = lambda *a, **k: '{\"value\": 1e999}'\n"
        "def p(solution_str, ground_truth, extra_info): return 1.0\n"
    )
    ref = FunctionRef("p.p", "reward_fn/p.py", "p")
    [[poisoned]] = await pools.call_rewards(
        SandboxProject(folder, "p"), [ref], [RewardInput("s", [], "7")], LIMITS
    )
    assert poisoned.value is None
    [after] = await tried(pools, project, "fine")
    assert after.value == 0.5
