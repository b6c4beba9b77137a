"""The mapping: which table feeds which models, and what its columns mean; a TOML file.

It is read once, when the workers start, and checked as a whole: a mistake in it would erase wrong
rows, or none.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping as MappingType
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Id
from lethe.consumers.log.base import Partition
from lethe.consumers.service.configuration.toml_file import read_toml
from lethe.engine.errors import InvalidData
from lethe.engine.store.layout.reading import first_error

MAX_FILE_BYTES = 1 << 20
"""Largest file: a thousand tables take a tenth of it."""

MAX_TABLES = 1_000
"""Tables of one mapping: one consumer reads all their topics."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=249)]
"""Name of a topic, a table or a column; a topic of Kafka has at most 249 characters."""

ColumnType = Literal["integer", "text", "decimal"]
"""``decimal``: a numeric column, which Debezium must write as text."""

Columns = Annotated[dict[Name, ColumnType], Field(min_length=1, max_length=32)]
"""Columns in the order in which they make an id; 32 are the most that a key of PostgreSQL has."""


class _Strict(BaseModel):
    """A misspelt name is an error: an option that is ignored in silence would lose deletions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Table(_Strict):
    """One table, and the models that were trained on its rows.

    Attributes
    ----------
    topic
        The topic that Debezium writes its changes to.
    table
        ``schema.table``; several tables may share a topic.
    models
        The models that a change is sent to.
    key
        The columns that make the id of a row, with their types.
    subject
        The columns that make the id of the subject whose row it is.
    format
        ``envelope`` (with or without schema, and CloudEvents), or ``flattened`` by
        ``ExtractNewRecordState``.
    replica_identity
        The table's REPLICA IDENTITY. Unless it is ``full``, PostgreSQL sends only the primary key
        of a deleted row, and Debezium invents the other columns.
    decimal_handling
        The connector's ``decimal.handling.mode``; named because base64 without a schema looks like
        text.
    deletes
        What a deleted row asks for: the deletion of that ``row``, or of all rows of its
        ``subject``.
    updates
        ``correct`` the row in the models, or ``ignore``.
    key_changes
        When the primary key of a row changes: ``erase`` the row under its old id, or ``correct``:
        do so, and insert it under its new id.
    tombstones
        Of a flattened topic: ``refuse``, because a tombstone may be the only trace of a deletion,
        or ``ignore``, where a record with ``__deleted`` precedes each.
    features
        Feature or target of a model to column, where their names differ.
    """

    topic: Name
    table: Name
    models: Annotated[tuple[Id, ...], Field(min_length=1, strict=False)]
    key: Columns
    subject: Columns | None = None
    format: Literal["envelope", "flattened"] = "envelope"
    replica_identity: Literal["default", "full"] = "default"
    decimal_handling: Literal["string"] | None = None
    deletes: Literal["row", "subject"] = "row"
    updates: Literal["ignore", "correct"] = "ignore"
    key_changes: Literal["erase", "correct"] = "erase"
    tombstones: Literal["refuse", "ignore"] = "refuse"
    features: dict[Name, Name] = Field(default_factory=dict)

    @field_validator("topic")
    @classmethod
    def _foreign(cls, topic: str) -> str:
        if topic in _OWN_TOPICS:
            raise ValueError("is one of Lethe's own topics, which carry no table changes")
        return topic

    @field_validator("table")
    @classmethod
    def _qualified(cls, table: str) -> str:
        if table.count(".") != 1 or not all(table.split(".")):
            raise ValueError("write schema.table, for example public.customers")
        return table

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(models)) != len(models):
            raise ValueError("names a model twice")
        return models

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        named = {**self.key, **(self.subject or {})}
        if "decimal" in named.values() and self.decimal_handling != "string":
            raise ValueError(
                'a decimal column needs decimal_handling = "string", and the connector '
                "decimal.handling.mode=string: otherwise the values are base64"
            )
        if self.deletes == "subject" and self.subject is None:
            raise ValueError('deletes = "subject" needs the columns of the subject')
        outside = [name for name in self.subject or () if name not in self.key]
        if outside and self.replica_identity != "full":
            raise ValueError(
                f"the subject {outside[0]!r} is not in the key: the table needs REPLICA IDENTITY "
                'FULL (ALTER TABLE), and the mapping replica_identity = "full"; otherwise '
                "Debezium invents the values of a deleted row"
            )
        if self.key_changes == "correct" and self.updates != "correct":
            raise ValueError('key_changes = "correct" needs updates = "correct"')
        return self


class Mapping(_Strict):
    """A whole mapping. ``connector`` is the ``topic.prefix``, which Debezium's records name."""

    connector: Name
    tables: Annotated[tuple[Table, ...], Field(min_length=1, max_length=MAX_TABLES, strict=False)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        seen: set[tuple[str, str]] = set()
        for one in self.tables:
            if (one.topic, one.table) in seen:
                raise ValueError(f"table {one.table} of topic {one.topic} is mapped twice")
            seen.add((one.topic, one.table))
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads, sorted."""
        return tuple(sorted({table.topic for table in self.tables}))

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it feeds, sorted."""
        return tuple(sorted({model for table in self.tables for model in table.models}))

    @cached_property
    def by_topic(self) -> MappingType[str, MappingType[str, Table]]:
        """By topic, its tables by name."""
        found: dict[str, dict[str, Table]] = defaultdict(dict)
        for one in self.tables:
            found[one.topic][one.table] = one
        return found

    @cached_property
    def digest(self) -> str:
        """What tells it from another mapping, whatever the comments of its file.

        The position in a topic is kept for one mapping: a model that is added gets the deletions
        that were read before it, and their repeats for other models have no effect.
        """
        content = self.model_dump_json(exclude_defaults=True).encode()
        return hashlib.sha256(content).hexdigest()[:16]


_OWN_TOPICS = frozenset(spec.name for spec in topics.specs())


def load_mapping(path: Path) -> Mapping:
    """Read a mapping.

    Raises
    ------
    InvalidData
        The file cannot be read, or does not follow docs/cdc.md; the message names the place.
    """
    try:
        return Mapping.model_validate(read_toml(path, MAX_FILE_BYTES))
    except ValidationError as error:
        message = first_error(error, "the mapping").replace("Value error, ", "", 1)
        raise InvalidData(f"{path}: {message}; docs/cdc.md has an example") from None


def intake_watermark(mapping: Mapping, partition: Partition) -> str:
    """Return the name of a position in the store: another mapping reads its topics from the start.

    What it reads again has the ids of the first time.
    """
    return f"{partition}/{mapping.digest}"
