"""The platform as a child: one at a time in a folder, and errors that name its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.__main__ import arguments
from examples.demo.embedded import EmbeddedPlatform, PlatformFailed

ROOT = Path(__file__).parent.parent.parent


def test_two_demonstrations_do_not_share_a_folder(tmp_path: Path) -> None:
    with EmbeddedPlatform(tmp_path, ROOT) as first:
        (first.data / "db").mkdir(parents=True)
        with pytest.raises(PlatformFailed, match="another demonstration"):
            EmbeddedPlatform(tmp_path, ROOT).__enter__()
        assert (first.data / "db").exists(), "the data of the first one stays"
    with EmbeddedPlatform(tmp_path, ROOT) as second:
        assert not (second.data / "db").exists(), "each begins with fresh data"


def test_models_are_kept_between_demonstrations(tmp_path: Path) -> None:
    with EmbeddedPlatform(tmp_path, ROOT) as first:
        (first.models / "m").mkdir()
    with EmbeddedPlatform(tmp_path, ROOT) as second:
        assert (second.models / "m").exists()


def test_a_platform_that_cannot_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    """A root without the services: the process ends at once."""
    with EmbeddedPlatform(tmp_path / "data", tmp_path) as platform:
        with pytest.raises(PlatformFailed, match="No module named services"):
            platform.start()


def test_the_child_has_the_embedded_default_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSMOSIS_BUS_URL", "amqp://elsewhere")
    monkeypatch.setenv("OSMOSIS_SANDBOX", "none")
    environment = EmbeddedPlatform(tmp_path, ROOT).environment()
    assert environment["OSMOSIS_BUS_URL"] == "local://"
    assert environment["OSMOSIS_SANDBOX"] == "none"


def test_the_command_line() -> None:
    options = arguments(["--json", "--tools", "--steps", "3", "--data-dir", "/tmp/x"])
    assert (options.json, options.tools, options.steps, options.data_dir) == (True, True, 3, Path("/tmp/x"))
    with pytest.raises(SystemExit):
        arguments(["--steps", "0"])
