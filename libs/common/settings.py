"""Every setting of the platform, from the environment (`OSMOSIS_…`). The two columns of design, section 4, differ in these alone."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_SECRET_BYTES = 32
_SHORTEST_SECRET = 16


class Settings(BaseSettings):
    """Defaults are the embedded column: one process, in-process bus, SQLite, folder."""

    model_config = SettingsConfigDict(env_prefix="OSMOSIS_", extra="ignore")

    data_dir: Path = Field(default=Path(".osmosis"), description="everything that is kept lies below it")
    bus_url: str = Field(default="local://", description="local:// or amqp://user:password@host:port/vhost")
    bus_prefix: str = Field(
        default="", description="put before every name on the broker, to share one broker"
    )
    database_url: str = Field(default="", description="empty: SQLite below data_dir; else postgresql://…")
    blob_url: str = Field(default="", description="empty: a folder below data_dir; else s3://bucket/prefix")
    s3_endpoint: str | None = Field(default=None, description="address of an S3-compatible store")
    secret_key: SecretStr | None = Field(default=None, description="key of the deployment; made when absent")
    root_key: SecretStr | None = Field(default=None, description="the operator's API key; made when absent")

    host: str = Field(default="127.0.0.1", description="address that the gateway listens on")
    port: int = Field(default=8700, description="port of the gateway; 0: any free one")
    internal_host: str = Field(default="127.0.0.1", description="address that trainer and rollout listen on")
    advertised_host: str = Field(
        default="127.0.0.1", description="address at which attempts reach this machine"
    )
    trainer_port: int = Field(
        default=0, description="port of the trainer service for its attempts; 0: any free"
    )
    trainer_url: str | None = Field(default=None, description="where attempts reach the trainer service")
    rollout_port: int = Field(default=0, description="port of the rollout broker; 0: any free one")
    probe_port: int = Field(default=0, description="health and readiness of a service by itself; 0: any free")

    model_roots: list[Path] = Field(
        default_factory=list[Path], description="folders with base models, besides the store"
    )
    git_allow_local: bool = Field(
        default=False, description="allow repositories that are folders of this machine"
    )
    cpu_slots: int | None = Field(
        default=None, description="training slots of this machine; default 1 without GPUs"
    )
    node_name: str | None = None

    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    log_level: str = "INFO"
    log_format: Literal["json", "console"] = "json"
    otlp_endpoint: str | None = Field(default=None, description="OTLP/HTTP address that traces are sent to")

    lease_ttl_s: float = Field(default=30, description="a lease without a heartbeat for so long is lost")
    request_timeout_s: float = Field(default=15, description="deadline of a request between services")

    @cached_property
    def database(self) -> str:
        """The database address, with the default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'db'}"

    @cached_property
    def blobs(self) -> str:
        """The blob store's address, with the default filled in."""
        return self.blob_url or f"file://{self.data_dir.absolute() / 'blobs'}"

    @property
    def embedded(self) -> bool:
        """Whether the bus lives in this process."""
        return self.bus_url.startswith("local:")

    @property
    def model_store(self) -> Path:
        """Folder of the local model store: one Hugging Face folder a model."""
        return self.data_dir.absolute() / "models"

    @cached_property
    def deployment_secret(self) -> bytes:
        """The key that tokens between our processes are derived from. Made once, readable by the owner alone."""
        return self._secret(self.secret_key, "secret.key", "OSMOSIS_SECRET_KEY").encode()

    @cached_property
    def operator_key(self) -> str:
        """The root API key. Made once, readable by the owner alone."""
        return self._secret(self.root_key, "root.key", "OSMOSIS_ROOT_KEY", prefix="osm_root_")

    def _secret(self, given: SecretStr | None, file: str, variable: str, prefix: str = "") -> str:
        if given is not None:
            return _long_enough(given.get_secret_value(), variable)
        if not self.embedded:
            raise ValueError(f"{variable} must be set when services run apart: all of them need the same one")
        path = self.data_dir.absolute() / file
        if not path.exists():
            _create_secret(path, prefix + secrets.token_urlsafe(_SECRET_BYTES))
        return _long_enough(path.read_text().strip(), str(path))


def _create_secret(path: Path, text: str) -> None:
    """Whole or not at all, readable by the owner alone; the first of several processes wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()


def _long_enough(text: str, where: str) -> str:
    if len(text) < _SHORTEST_SECRET:
        raise ValueError(f"{where} holds fewer than {_SHORTEST_SECRET} characters: anybody could guess it")
    return text
