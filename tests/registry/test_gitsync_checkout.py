"""Git sync: what a checkout gives, and what a hostile repository gets."""

from __future__ import annotations

import hashlib
import random
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from services.registry.gitsync import Checkout, GitLimits, SyncFailed, Wanted, check_out, parse_remote
from tests.registry.git_repositories import REWARD, Repository

Sync = Callable[..., Awaitable[Checkout]]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def sync(tmp_path: Path, repository: Repository) -> Sync:
    count = iter(range(100))

    async def run(
        *, branch: str | None = None, commit: str | None = None, limits: GitLimits | None = None
    ) -> Checkout:
        folder = tmp_path / f"checkout{next(count)}"
        folder.mkdir()
        remote = parse_remote(repository.url, allow_local=True)
        return await check_out(Wanted(remote, branch, commit), folder, limits=limits)

    return run


async def refused(sync: Sync, **options: object) -> list[tuple[str | None, str]]:
    with pytest.raises(SyncFailed) as caught:
        await sync(**options)
    return [(error.file, error.message) for error in caught.value.errors]


async def test_a_commit_is_packed_whole(repository: Repository, sync: Sync):
    commit = repository.commit(
        {"reward_fn/a.py": REWARD, "data.bin": b"\0\xff" * 1000, "sub/é.txt": "x"}, links={"l": "sub"}
    )
    done = await sync()
    assert (done.commit, done.author, done.message) == (commit, "Ada", "work")
    with tarfile.open(done.archive) as tar:
        members = {member.name: member for member in tar}
        assert set(members) == {"reward_fn/a.py", "data.bin", "sub/é.txt", "l"}
        assert tar.extractfile("data.bin").read() == b"\0\xff" * 1000
        assert members["l"].linkname == "sub"
    assert done.sources == {"reward_fn/a.py": REWARD.encode()}
    assert hashlib.sha256(done.archive.read_bytes()).hexdigest() == done.sha256
    assert done.archive.stat().st_size == done.size


async def test_the_same_commit_gives_the_same_bytes(repository: Repository, sync: Sync):
    repository.commit({"reward_fn/a.py": REWARD, "b/long" + "x" * 200: "é"})
    assert (await sync()).sha256 == (await sync()).sha256


async def test_only_the_permission_to_run_is_kept(repository: Repository, sync: Sync):
    repository.commit({"run.sh": "#!/bin/sh\n"})
    (repository.folder / "run.sh").chmod(0o777)
    repository.commit({"plain": ""})
    with tarfile.open((await sync()).archive) as tar:
        assert {member.name: member.mode for member in tar} == {"run.sh": 0o755, "plain": 0o644}
        assert {member.mtime for member in tar} == {0}


async def test_branch_and_commit_choose_what_is_fetched(repository: Repository, sync: Sync):
    first = repository.commit({"a": "1"})
    second = repository.commit({"a": "2"})
    repository.git("checkout", "--quiet", "-b", "other")
    third = repository.commit({"a": "3"})
    repository.git("checkout", "--quiet", "main")
    assert (await sync()).commit == second
    assert (await sync(branch="other")).commit == third
    assert (await sync(commit=first)).commit == first
    assert (await sync(commit=first[:8])).commit == first


async def test_what_does_not_exist_is_said_clearly(repository: Repository, sync: Sync):
    repository.commit({"a": "1"})
    assert "branch does not exist" in (await refused(sync, branch="nowhere"))[0][1]
    assert "commit does not exist" in (await refused(sync, commit="0" * 40))[0][1]
    assert "no single commit" in (await refused(sync, commit="0" * 8))[0][1]


async def test_an_empty_repository_and_no_repository_are_said_clearly(
    tmp_path: Path, repository: Repository, sync: Sync
):
    assert "does not exist" in (await refused(sync))[0][1]
    folder = tmp_path / "target"
    folder.mkdir()
    with pytest.raises(SyncFailed, match="no git repository"):
        await check_out(Wanted(parse_remote(str(tmp_path), allow_local=True)), folder)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd", "sub/../../x"])
async def test_a_link_out_of_the_tree_is_refused_by_name(repository: Repository, sync: Sync, target: str):
    repository.commit({"sub/a": "1"}, links={"evil": target})
    ((file, message),) = await refused(sync)
    assert file == "evil"
    assert "leads out of the repository" in message


async def test_links_that_leave_the_tree_only_together_are_refused(repository: Repository, sync: Sync):
    repository.commit({"s/a": "1", "p/q/x": ""}, links={"p/q/d": "../../s", "p/q/e": "d/../../x"})
    assert [file for file, _ in await refused(sync)] == ["p/q/e"]


async def test_links_inside_the_tree_are_followed_for_sources(repository: Repository, sync: Sync):
    repository.commit({"shared/a.py": REWARD}, links={"reward_fn/a.py": "../shared/a.py"})
    assert (await sync()).sources == {"reward_fn/a.py": REWARD.encode()}


async def test_a_submodule_is_left_out_with_a_warning(repository: Repository, sync: Sync):
    inner = repository.commit({"a": "1"})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{inner},vendored")
    repository.git("commit", "--quiet", "-m", "submodule")
    done = await sync()
    assert [(error.file, error.severity) for error in done.errors] == [("vendored", "warning")]


async def test_an_lfs_pointer_is_taken_as_it_is_with_a_warning(repository: Repository, sync: Sync):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    repository.commit({"model.bin": pointer, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    done = await sync()
    assert [error.file for error in done.errors] == ["model.bin"]
    with tarfile.open(done.archive) as tar:
        assert tar.extractfile("model.bin").read().decode() == pointer


async def test_no_hook_and_no_filter_runs(tmp_path: Path, repository: Repository, sync: Sync):
    witness = tmp_path / "ran"
    repository.commit({"a.txt": "1", ".gitattributes": "*.txt filter=evil\n"})
    repository.git("config", "filter.evil.smudge", f"touch {witness}")
    repository.git("config", "uploadpack.packObjectsHook", f"touch {witness}; false")
    repository.git("config", "core.fsmonitor", f"touch {witness}")
    for hook in ("post-checkout", "post-merge", "reference-transaction", "post-index-change", "pre-auto-gc"):
        path = repository.folder / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {witness}\n")
        path.chmod(0o755)
    await sync()
    assert not witness.exists()


async def test_limits_name_what_breaks_them(repository: Repository, sync: Sync):
    repository.commit({"big": "x" * 2000, "a/b/c/d": "1"})
    assert "2000 bytes" in (await refused(sync, limits=GitLimits(file_bytes=1000)))[0][1]
    assert "3 folders" not in str(await refused(sync, limits=GitLimits(depth=3)))
    assert (await refused(sync, limits=GitLimits(depth=3)))[0][0] == "a/b/c/d"
    assert "all files together" in (await refused(sync, limits=GitLimits(tree_bytes=1000)))[0][1]
    assert "more than 1 files" in (await refused(sync, limits=GitLimits(files=1)))[0][1]
    assert "took more than" in (await refused(sync, limits=GitLimits(seconds=0)))[0][1]


async def test_a_pack_over_the_limit_ends_the_fetch(repository: Repository, sync: Sync):
    repository.commit({"noise": random.Random(1).randbytes(3_000_000)})
    assert "over the size limit" in (await refused(sync, limits=GitLimits(fetch_bytes=1_000_000)))[0][1]


async def test_a_tree_that_doubles_at_every_level_is_ended(repository: Repository, sync: Sync):
    tree = repository.tree(*(f"100644 blob {repository.blob(b'x')}\tf{i}" for i in range(10)))
    for _ in range(9):
        tree = repository.tree(*(f"040000 tree {tree}\td{i}" for i in range(10)))
    repository.commit_tree(tree)
    assert "files" in (await refused(sync))[0][1]


async def test_a_dot_git_folder_in_the_tree_is_refused(repository: Repository, sync: Sync):
    inner = repository.tree(f"100644 blob {repository.blob(b'[core]')}\tconfig")
    repository.commit_tree(repository.tree(f"040000 tree {inner}\t.GIT"))
    assert await refused(sync)


async def test_a_name_that_is_not_utf8_is_refused(repository: Repository, sync: Sync):
    blob = repository.blob(b"x")
    tree = repository.git("mktree", "-z", stdin=b"100644 blob %s\tf\xff\0" % blob.encode())
    repository.commit_tree(tree)
    assert await refused(sync) == [("f\\xff", "a file's name is not UTF-8; rename it")]


async def test_a_source_file_over_the_limit_does_not_hide_the_others(repository: Repository, sync: Sync):
    repository.commit({"reward_fn/a.py": REWARD, "reward_fn/b.py": "#" * 2_000_000})
    done = await sync()
    assert list(done.sources) == ["reward_fn/a.py"]
    assert [(error.file, error.severity) for error in done.errors] == [("reward_fn/b.py", "error")]
