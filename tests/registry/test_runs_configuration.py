"""A run's configuration: every fault at once with its path, and the recipe's parts when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.code import Finding
from libs.common.contracts.recipes import BaseModelSnapshot, CodeSnapshot, DatasetSnapshot
from libs.common.errors import Invalid
from services.registry.runs import Known, KnownDataset, check, named
from services.registry.runs.configuration import KnownCode, KnownModel

BLOB = BlobRef(key="k", size=1, sha256="0" * 64)


def dataset(rows: int = 10) -> KnownDataset:
    return KnownDataset("uploaded", DatasetSnapshot(dataset_id="ds_1", rows=rows, content=BLOB, index=BLOB))


def finding(kind: str, name: str) -> Finding:
    return Finding(kind=kind, name=name, file=f"x/{name}.py", line=1, function=name.rsplit(".")[-1])


CODE = KnownCode(
    CodeSnapshot(sync_id="sync_1", commit="c" * 40, archive=BLOB, has_tools=True),
    [
        finding("reward", "a.exact"),
        finding("rubric", "b.tone"),
        finding("tool", "add"),
        finding("tool_server", "mcp.main"),
    ],
)
MODEL = KnownModel("ready", BaseModelSnapshot(model_id="model_1", name="tiny", manifest=BLOB))
KNOWN = Known(base_model=MODEL, dataset=dataset(), code=CODE)


def config(**changes: Any) -> dict[str, Any]:
    return {"base_model": "tiny", "dataset": "ds_1", "rewards": [{"name": "a.exact"}]} | changes


def paths(raw: dict[str, Any], known: Known = KNOWN) -> set[str]:
    with pytest.raises(Invalid) as caught:
        check(raw, known)
    assert all(fault.message for fault in caught.value.fields)
    return {fault.path for fault in caught.value.fields}


def test_a_good_configuration_names_exact_content():
    checked = check(
        config(rewards=[{"name": "a.exact", "weight": 2}, {"name": "b.tone"}], rollout={"tools": ["add"]}),
        KNOWN,
    )
    assert [(ref.kind, ref.file, ref.function, ref.weight) for ref in checked.rewards] == [
        ("reward", "x/a.exact.py", "exact", 2.0),
        ("rubric", "x/b.tone.py", "tone", 1.0),
    ]
    assert checked.code.commit == "c" * 40
    assert checked.dataset.rows == 10


def test_all_faults_come_at_once_with_their_paths():
    raw = config(
        base_model="nope",
        dataset="nope",
        rewards=[{"name": "a.exact"}, {"name": "a.gone"}, {"name": "a.exact"}, {"weight": 1}],
        sampling={"temperature": -1},
        training={"lr": "fast", "loss": "none"},
        rollout={"tools": ["add", "sub"]},
        validation={"dataset": "gone", "share": 2},
        colour="red",
    )
    assert paths(raw, Known(code=CODE)) == {
        "base_model", "dataset", "rewards.1.name", "rewards.2.name", "rewards.3.name", "sampling.temperature",
        "training.lr", "training.loss", "rollout.tools.1", "validation.dataset", "validation.share", "colour",
    }  # fmt: skip


def test_what_exists_but_is_not_ready_is_refused_with_its_status():
    known = Known(base_model=KnownModel("processing", None), dataset=KnownDataset("error", None), code=CODE)
    with pytest.raises(Invalid) as caught:
        check(config(), known)
    messages = {fault.path: fault.message for fault in caught.value.fields}
    assert "processing" in messages["base_model"]
    assert "error" in messages["dataset"]


def test_a_project_without_code_is_told_to_sync():
    assert paths(config(), Known(base_model=MODEL, dataset=dataset())) == {"rewards"}


def test_a_missing_reward_lists_what_there_is():
    with pytest.raises(Invalid) as caught:
        check(config(rewards=[{"name": "a.gone"}]), KNOWN)
    assert "a.exact, b.tone" in caught.value.fields[0].message


def test_one_row_cannot_be_split():
    known = Known(base_model=MODEL, dataset=dataset(rows=1), code=CODE)
    assert paths(config(validation={"share": 0.5}), known) == {"validation.share"}


def test_batches_must_be_whole_groups():
    assert paths(config(training={"global_batch_size": 10, "n_samples_per_prompt": 4})) == {"training"}


def test_paths_are_those_of_the_users_json():
    assert paths(config(rollout={"tools": [1]})) == {"rollout.tools", "rollout.tools.0"}
    assert paths(config(training={"lora": {"target_modules": 3}})) == {"training.lora.target_modules"}


def test_an_empty_configuration_names_what_is_missing():
    assert {"base_model", "dataset", "rewards"} <= paths({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["base_model", "dataset", "rewards", "rollout", "validation", "sampling", "training", "x"]
)


@given(st.dictionaries(fields, json_values))
def test_no_json_makes_the_check_fail(raw: dict[str, Any]):
    named(raw)
    try:
        check(raw, KNOWN)
    except Invalid as error:
        assert error.fields
