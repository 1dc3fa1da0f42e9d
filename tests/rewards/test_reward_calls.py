"""Reward functions are called as workspace repositories are promised, and their verdicts are honest."""

from __future__ import annotations

from services.rewards.domain.inputs import RewardInput
from services.rewards.pools import SandboxPools
from tests.rewards.repositories import QUICK, Repository, call, function, sample

EVERY_KIND = """
from __future__ import annotations
import json
from osmosis_ai import osmosis_reward as scored
import osmosis_ai
from reward_fn.beside import HALF
import beside_too

@scored
def plain(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return HALF if solution_str == ground_truth else 0.0

@osmosis_ai.osmosis_reward
async def later(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    import asyncio
    await asyncio.sleep(0)
    return beside_too.QUARTER

@scored
def tells(solution_str: str, ground_truth: str, extra_info: dict = None, data_source=None, **kwargs) -> float:
    print(json.dumps([solution_str, ground_truth, extra_info, data_source, sorted(kwargs)]))
    return 1.0

@scored
def conversation(messages, ground_truth, metadata):
    print(json.dumps([messages, ground_truth, metadata]))
    return len(messages)

@scored
def yes(messages, ground_truth, metadata):
    return True

@scored
def words(messages, ground_truth, metadata):
    return "0.4"

@scored
def integer(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return 1

@scored
def nothing(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return None

@scored
def nan(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float("nan")

@scored
def infinite(messages, ground_truth, metadata):
    return float("-inf")

@scored
def raises(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    print("before")
    raise KeyError("the colour")

@scored
def leaves(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    raise SystemExit(3)

def undecorated(solution_str, ground_truth, extra_info):
    return 0.125

def needs_more(prompt, colour):
    return 1.0
"""


def everything(repository: Repository) -> Repository:
    return (
        repository.write("reward_fn/scores.py", EVERY_KIND)
        .write("reward_fn/beside.py", "HALF = 0.5\n")
        .write("reward_fn/beside_too.py", "QUARTER = 0.25\n")
    )


async def test_values_of_every_style_of_function(pools: SandboxPools, repository: Repository) -> None:
    project = everything(repository).project()
    names = ["plain", "later", "undecorated", "conversation", "yes"]
    [verdicts] = await pools.call_rewards(project, [function(name) for name in names], [sample()], QUICK)
    assert [v.value for v in verdicts] == [0.5, 0.25, 0.125, 2.0, 1.0]
    assert [v.error for v in verdicts] == [None] * 5


async def test_a_failure_is_no_reward_with_a_reason_and_never_zero(
    pools: SandboxPools, repository: Repository
) -> None:
    project = everything(repository).project()
    expected = {
        "integer": ("wrong_type", "returned int"),
        "nothing": ("wrong_type", "NoneType"),
        "words": ("wrong_type", "returned str"),
        "nan": ("not_finite", "nan"),
        "infinite": ("not_finite", "-inf"),
        "raises": ("exception", "KeyError: 'the colour'\n  reward_fn/scores.py:56 in raises"),
        "leaves": ("exception", "SystemExit: 3"),
        "needs_more": ("exception", "unexpected keyword argument"),
        "absent": ("import", "no function absent"),
    }
    [verdicts] = await pools.call_rewards(project, [function(name) for name in expected], [sample()], QUICK)
    for (kind, says), verdict in zip(expected.values(), verdicts, strict=True):
        assert (verdict.value, verdict.error_kind) == (None, kind)
        assert says in (verdict.error or "")
    assert verdicts[5].output == "before\n"


async def test_the_keywords_of_a_classic_function(pools: SandboxPools, repository: Repository) -> None:
    project = everything(repository).project()
    verdict = await call(pools, project, "tells", level=3, data_source="web")
    assert verdict.output == (
        '["42", "42", {"metadata": {"level": 3, "data_source": "web"}, "num_turns": 1, "rollout_id": "s1", '
        '"level": 3, "data_source": "web"}, "web", []]\n'
    )


async def test_the_keywords_of_a_function_of_the_conversation(
    pools: SandboxPools, repository: Repository
) -> None:
    project = everything(repository).project()
    verdict = await call(pools, project, "conversation", level=3)
    assert verdict.output.endswith('"content": "42"}], "42", {"level": 3}]\n')


async def test_a_bad_file_hides_no_other(pools: SandboxPools, repository: Repository) -> None:
    project = (
        everything(repository)
        .write("reward_fn/broken.py", "def f(:\n")
        .write("reward_fn/lost.py", "import nowhere_to_be_found\n")
        .write(
            "reward_fn/refused.py",
            "from osmosis_ai import osmosis_reward\n@osmosis_reward\ndef f(solution_str): ...\n",
        )
        .project()
    )
    functions = [function("f", f"reward_fn/{name}.py") for name in ("broken", "lost", "refused")]
    [verdicts] = await pools.call_rewards(project, [*functions, function("plain")], [sample()], QUICK)
    says = ["SyntaxError", "No module named 'nowhere_to_be_found'", "at least three"]
    for part, verdict in zip(says, verdicts, strict=False):
        assert verdict.error_kind == "import"
        assert part in (verdict.error or "")
    assert verdicts[3].value == 0.5


async def test_verdicts_come_in_the_order_of_samples_and_functions(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.write(
        "reward_fn/scores.py",
        "def first(solution_str, ground_truth, extra_info): return float(solution_str)\n"
        "def second(solution_str, ground_truth, extra_info): return -float(solution_str)\n",
    ).project()
    samples = [sample(str(number), sample_id=f"s{number}") for number in range(70)]
    verdicts = await pools.call_rewards(project, [function("first"), function("second")], samples, QUICK)
    assert [[v.value for v in row] for row in verdicts] == [[float(n), -float(n)] for n in range(70)]


async def test_secrets_are_set_before_import_and_an_absent_one_is_absent(
    pools: SandboxPools, repository: Repository
) -> None:
    project = repository.write(
        "reward_fn/scores.py",
        "import os\nKEY, OTHER = os.getenv('API_KEY'), os.getenv('OTHER_KEY')\n"
        "def tried(solution_str, ground_truth, extra_info): return float(KEY == 'hush' and OTHER is None)\n",
    ).project(secrets=(("API_KEY", "hush"),))
    assert (await call(pools, project)).value == 1.0
    assert "hush" not in repr(project)


async def test_no_call_sees_anothers_state(pools: SandboxPools, repository: Repository) -> None:
    project = repository.write(
        "reward_fn/scores.py",
        "SEEN = []\n"
        "def tried(solution_str, ground_truth, extra_info):\n"
        "    SEEN.append(1); open('/tmp/seen', 'a').write('x')\n"
        "    return float(len(SEEN) + len(open('/tmp/seen').read()))\n",
    ).project()
    verdicts = await pools.call_rewards(project, [function("tried")], [sample()] * 5, QUICK)
    assert [v.value for [v] in verdicts] == [2.0] * 5


async def test_no_samples_are_no_verdicts(pools: SandboxPools, repository: Repository) -> None:
    assert await pools.call_rewards(repository.project(), [function("f")], [], QUICK) == []
    assert await pools.call_rewards(repository.project(), [], [sample()], QUICK) == [[]]


async def test_an_answer_of_broken_text_is_passed_on(pools: SandboxPools, repository: Repository) -> None:
    project = repository.reward("return float(len(solution_str))").project()
    answer = RewardInput("s", [{"role": "assistant", "content": "\ud800é\x00"}], "1", {})
    [[verdict]] = await pools.call_rewards(project, [function("tried")], [answer], QUICK)
    assert verdict.value is not None
