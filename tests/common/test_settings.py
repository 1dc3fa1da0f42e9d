"""Settings: the two columns differ in these alone, and secrets are made well or asked for clearly."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from libs.common.settings import Settings


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OSMOSIS_"):
            monkeypatch.delenv(name)


def test_the_default_is_the_embedded_column(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    assert settings.embedded
    assert settings.database == f"sqlite:///{tmp_path}/db"
    assert settings.blobs == f"file://{tmp_path}/blobs"


def test_a_broker_s_address_is_the_other_column(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OSMOSIS_BUS_URL", "amqp://user:password@broker/")
    monkeypatch.setenv("OSMOSIS_DATABASE_URL", "postgresql://server/osmosis")
    monkeypatch.setenv("OSMOSIS_BLOB_URL", "s3://bucket/prefix")
    settings = Settings()
    assert not settings.embedded
    assert (settings.database, settings.blobs) == ("postgresql://server/osmosis", "s3://bucket/prefix")


def test_secrets_are_made_once_and_readable_by_their_owner_alone(tmp_path: Path):
    old = os.umask(0)
    try:
        first, again = Settings(data_dir=tmp_path), Settings(data_dir=tmp_path)
        assert first.deployment_secret == again.deployment_secret
        assert first.operator_key == again.operator_key
    finally:
        os.umask(old)
    assert first.operator_key.startswith("osm_root_")
    assert len(first.deployment_secret) >= 32
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["root.key", "secret.key"]
    for name in files:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_processes_that_start_at_once_agree_on_the_secret(tmp_path: Path):
    with ThreadPoolExecutor(16) as threads:
        made = set(threads.map(lambda _: Settings(data_dir=tmp_path).deployment_secret, range(64)))
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


@pytest.mark.parametrize(
    ("name", "variable"),
    [("deployment_secret", "OSMOSIS_SECRET_KEY"), ("operator_key", "OSMOSIS_ROOT_KEY")],
)
def test_services_that_run_apart_are_told_which_secret_is_missing(name: str, variable: str, tmp_path: Path):
    settings = Settings(data_dir=tmp_path, bus_url="amqp://broker/")
    with pytest.raises(ValueError, match=f"{variable} must be set"):
        getattr(settings, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["", "short"])
def test_a_secret_that_could_be_guessed_is_refused_without_being_shown(secret: str, tmp_path: Path):
    settings = Settings(data_dir=tmp_path, secret_key=SecretStr(secret))
    with pytest.raises(ValueError, match="OSMOSIS_SECRET_KEY holds fewer than 16 characters") as caught:
        _ = settings.deployment_secret
    assert "short" not in str(caught.value)


def test_a_secret_file_that_was_emptied_is_refused_by_name(tmp_path: Path):
    (tmp_path / "secret.key").write_text("")
    with pytest.raises(ValueError, match=r"secret\.key holds fewer"):
        _ = Settings(data_dir=tmp_path).deployment_secret


def test_secrets_are_not_shown_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OSMOSIS_SECRET_KEY", "a-secret-of-this-deployment")
    monkeypatch.setenv("OSMOSIS_ROOT_KEY", "osm_root_of-this-deployment")
    assert "of-this-deployment" not in repr(Settings())
    assert Settings().deployment_secret == b"a-secret-of-this-deployment"


def test_a_wrong_setting_names_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OSMOSIS_SANDBOX", "chroot")
    with pytest.raises(ValidationError, match="sandbox"):
        Settings()
