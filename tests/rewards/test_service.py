"""The rewards service as its peers see it: a group comes, scores go; tools are opened, called and closed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import RewardRef, ScoringConfig
from libs.common.contracts.requests import Caller
from libs.common.contracts.rollouts import CallTool, CloseToolSession, OpenToolSession
from libs.common.errors import Forbidden, Invalid, NotFound
from libs.common.identifiers import RolloutId, RunId, WorkspaceId
from libs.common.platform import as_service
from services.rewards.checkouts import unpack_tree
from tests.rewards.repositories import Repository, living_below
from tests.rewards.worlds import rewards_world, trajectory

CALCULATOR = Path(__file__).parents[2] / "examples" / "calculator-workspace"
LAST_INTEGER = RewardRef(
    name="compute_reward.last_integer_matches",
    kind="reward",
    file="reward_fn/compute_reward.py",
    function="last_integer_matches",
    weight=1.0,
)
BROKER = as_service("rollout")


async def test_the_example_scores_right_and_wrong_answers(tmp_path: Path) -> None:
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(CALCULATOR)
        answers = ["5 + 2 = 7.", "The sum is 8", "no number", "-7", "7, not 9"]
        group = [trajectory(answer, "7", number) for number, answer in enumerate(answers)]
        scored = await world.score(code, [LAST_INTEGER], group)
        assert [score.reward for score in scored.scores] == [1.0, 0.0, 0.0, 0.0, 0.0]
        assert [score.rollout_id for score in scored.scores] == [one.rollout_id for one in group]
    assert not living_below()


async def test_a_function_that_fails_is_a_missing_reward_with_its_reason(
    tmp_path: Path, repository: Repository
) -> None:
    repository.reward("if solution_str == 'bad': raise ValueError('no such answer')\nreturn 2.0")
    one = RewardRef(
        name="scores.tried", kind="reward", file="reward_fn/scores.py", function="tried", weight=0.5
    )
    two = one.model_copy(update={"name": "scores.fine", "function": "fine", "weight": -1.0})
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(repository.root)
        group = [
            trajectory("good", "7", 0),
            trajectory("bad", "7", 1),
            trajectory("good", "7", 2, status="failed", error="out of time"),
        ]
        good, bad, failed = (await world.score(code, [one, two], group)).scores
        assert good.reward == 0.5
        assert bad.reward is None
        assert [c.value for c in bad.components] == [None, 0.5]
        assert (bad.components[0].error or "").startswith("exception: ValueError: no such answer")
        assert (failed.reward, failed.components) == (None, [])


async def test_code_that_cannot_be_had_is_a_reason_and_not_a_silence(tmp_path: Path) -> None:
    async with rewards_world(tmp_path / "data") as world:
        code = (await world.code(CALCULATOR)).model_copy(
            update={"archive": BlobRef(key="code/lost.tar", size=1, sha256="0" * 64)}
        )
        [score] = (await world.score(code, [LAST_INTEGER], [trajectory("7", "7")])).scores
        assert score.reward is None
        assert "sync again" in (score.components[0].error or "")


async def test_printed_text_of_many_samples_fits_a_message(tmp_path: Path, repository: Repository) -> None:
    repository.reward("print('x' * 100_000)\nreturn 1.0")
    ref = RewardRef(
        name="scores.tried", kind="reward", file="reward_fn/scores.py", function="tried", weight=1.0
    )
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(repository.root)
        scored = await world.score(code, [ref], [trajectory("a", "b", number) for number in range(32)])
        assert len(scored.model_dump_json()) < 64 * 1024
        assert all(score.reward == 1.0 for score in scored.scores)


async def test_the_runs_limits_hold(tmp_path: Path, repository: Repository) -> None:
    repository.reward("while True: pass")
    ref = RewardRef(
        name="scores.tried", kind="reward", file="reward_fn/scores.py", function="tried", weight=1.0
    )
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(repository.root)
        limits = ScoringConfig(timeout_s=0.5)
        [score] = (await world.score(code, [ref], [trajectory("a", "b")], limits)).scores
        assert (score.components[0].error or "").startswith("timeout:")


async def test_a_tool_session_over_the_bus(tmp_path: Path) -> None:
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(CALCULATOR, has_tools=True)
        order = OpenToolSession(run_id=RunId("r"), rollout_id=RolloutId("ro"), code=code)
        opened = await world.platform.ask(order, BROKER, timeout_s=60)
        assert [tool.function["name"] for tool in opened.tools] == ["add", "multiply"]
        call = CallTool(session_id=opened.session_id, name="add", arguments='{"a": 5, "b": 2}')
        answer = await world.platform.ask(call, BROKER, timeout_s=60, to=opened.address)
        assert (answer.text, answer.failed) == ("7", False)
        closing = CloseToolSession(session_id=opened.session_id)
        await world.platform.ask(closing, BROKER, to=opened.address)
        await world.platform.ask(closing, BROKER, to=opened.address)
        with pytest.raises(NotFound, match="open a new one"):
            await world.platform.ask(call, BROKER, to=opened.address)
    assert not living_below()


async def test_a_run_may_choose_its_tools(tmp_path: Path) -> None:
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(CALCULATOR, has_tools=True)
        order = OpenToolSession(run_id=RunId("r"), rollout_id=RolloutId("ro"), code=code, tools=["multiply"])
        opened = await world.platform.ask(order, BROKER, timeout_s=60)
        assert [tool.function["name"] for tool in opened.tools] == ["multiply"]
        call = CallTool(session_id=opened.session_id, name="add", arguments="{}")
        answer = await world.platform.ask(call, BROKER, to=opened.address)
        assert (answer.text, answer.failed) == ("Error: Unknown tool: 'add'", True)
        with pytest.raises(Invalid, match="no divide; it has add, multiply"):
            await world.platform.ask(order.model_copy(update={"tools": ["divide"]}), BROKER, timeout_s=60)


async def test_tools_are_for_services_alone_and_absent_ones_are_said(tmp_path: Path) -> None:
    async with rewards_world(tmp_path / "data") as world:
        code = await world.code(CALCULATOR)
        order = OpenToolSession(run_id=RunId("r"), rollout_id=RolloutId("ro"), code=code)
        with pytest.raises(Forbidden):
            await world.platform.ask(order, Caller(kind="key", workspace_id=WorkspaceId("ws")))
        with pytest.raises(Invalid, match="no tool server"):
            await world.platform.ask(order, BROKER)


@pytest.mark.parametrize(
    ("name", "leads_to"),
    [
        ("../out", None),
        ("/etc/out", None),
        ("a/../../out", None),
        ("link", "/etc/passwd"),
        ("a/link", "../../etc"),
    ],
)
def test_an_archive_that_leads_out_is_refused(tmp_path: Path, name: str, leads_to: str | None) -> None:
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo(name)
        if leads_to is not None:
            entry.type, entry.linkname = tarfile.SYMTYPE, leads_to
        tar.addfile(entry)
    with pytest.raises(Invalid):
        unpack_tree(archive, tmp_path / "tree")
    assert not (tmp_path / "out").exists()


def test_an_archive_cannot_write_through_a_link_of_its_own(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "b"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("a/file"))
    with pytest.raises((Invalid, OSError)):
        unpack_tree(archive, tmp_path / "tree")


def test_a_checkout_is_open_to_everybody_whatever_the_services_umask(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("a/b/file.py"))
    before = os.umask(0o077)
    try:
        unpack_tree(archive, tmp_path / "tree")
    finally:
        os.umask(before)
    modes = [(tmp_path / "tree" / part).stat().st_mode & 0o777 for part in (".", "a", "a/b", "a/b/file.py")]
    assert modes == [0o755, 0o755, 0o755, 0o644]
