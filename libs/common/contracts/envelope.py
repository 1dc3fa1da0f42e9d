"""Facts and their CloudEvents 1.0 envelope.

A fact is one frozen pydantic model with a routing key (`run.queued`), a version and a subject. A field may be added to
a fact, never changed: a change is a new class with the next version, and both are registered here side by side.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from libs.common.identifiers import WorkspaceId

TYPE_PREFIX = "osmosis."


class Contract(BaseModel):
    """Base of everything that crosses a process border: frozen, tolerant of fields that a newer peer adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Fact(Contract):
    """Something that happened. Subclass with `key=` (`run.queued`), `subject=` (a field's name) and `version=`."""

    KEY: ClassVar[str] = ""
    SUBJECT_FIELD: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1

    workspace_id: WorkspaceId

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The keywords are read below, once pydantic has made the fields.
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, key: str = "", subject: str = "", version: int = 1, **kwargs: Any
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not key:
            return
        cls.KEY, cls.SUBJECT_FIELD, cls.VERSION = key, subject, version
        known = _FACTS.setdefault(cls.type_name(), cls)
        if known is not cls:
            raise TypeError(
                f"{cls.type_name()} is registered twice: {known.__qualname__}, {cls.__qualname__}"
            )

    @classmethod
    def type_name(cls) -> str:
        """`osmosis.run.queued.v1`."""
        return f"{TYPE_PREFIX}{cls.KEY}.v{cls.VERSION}"

    @property
    def subject(self) -> str:
        """What the fact is about; order is promised among facts of one subject and source."""
        return str(getattr(self, type(self).SUBJECT_FIELD))


FactT = TypeVar("FactT", bound=Fact)
_FACTS: dict[str, type[Fact]] = {}


class UnknownFact(ValueError):
    """An envelope whose type this version does not know."""


def fact_types() -> dict[str, type[Fact]]:
    """Every registered type by its CloudEvents name."""
    return dict(_FACTS)


class Envelope(Contract):
    """A CloudEvents 1.0 event in JSON, with the extension attributes `workspaceid` and `traceparent`."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str = Field(description="/osmosis/<service>")
    type: str
    subject: str
    time: datetime
    workspaceid: WorkspaceId
    traceparent: str | None = None
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]

    @property
    def routing_key(self) -> str:
        """`run.queued`: the type without prefix and version."""
        return self.type.removeprefix(TYPE_PREFIX).rpartition(".v")[0]

    def fact(self) -> Fact:
        """The typed fact inside.

        Raises:
            UnknownFact: the type is not registered here.
            pydantic.ValidationError: the data do not fit the type.
        """
        kind = _FACTS.get(self.type)
        if kind is None:
            raise UnknownFact(f"{self.type} is not a fact that this version knows")
        return kind.model_validate(self.data)

    @classmethod
    def wrap(cls, fact: Fact, *, id: str, source: str, time: datetime, traceparent: str | None) -> Envelope:
        """The envelope of a fact that `source` (a service's name) states at `time`."""
        return cls(
            id=id,
            source=f"/osmosis/{source}",
            type=fact.type_name(),
            subject=fact.subject,
            time=time,
            workspaceid=fact.workspace_id,
            traceparent=traceparent,
            data=fact.model_dump(mode="json"),
        )
