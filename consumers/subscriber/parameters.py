"""Finding the parameters of a checked version: on ``lethe.models``, or in the store.

The topic is compacted and not in step with ``lethe.versions``: the parameters and the version of a
commit come in any order, a publisher that was interrupted repeats older ones, and compaction may
keep just these. Parameters count only if they match the version's digest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import redis

from lethe.consumers.commits.publish import parameters_event
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import IDENTITY, MODEL_PARAMETERS, Parameters, Version
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.subscriber.history import OfAnother, read_object
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import BrokenChain, CorruptState, InvalidData, LogReset, StoreUnavailable
from lethe.engine.fit.objective import Array
from lethe.engine.store.generation import PARAMETERS, read_published
from lethe.engine.store.layout.codec import unpack
from lethe.engine.store.layout.config import parse_config
from lethe.engine.store.layout.keys import ModelKeys, partition_index
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.server.connection import reachable

_BATCH = 16  # records of up to 900 KB
_READ_SECONDS = 1.0
_THETAS = ("theta_exact", "published", PARAMETERS)

MustBeSigned: TypeAlias = tuple[TrustedKeys, Callable[[int], bool]]
"""The trusted keys, and whether parameters of a version must be signed by one of them."""


@dataclass(slots=True)
class _Cursor:
    """A position in one partition, and this model's records that are read but not yet parsed."""

    partition: Partition
    offset: int
    waiting: deque[Record] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the parameters of a later version lie."""

    partition: Partition
    offset: int


class StoredParameters:
    """Reads a model's newest parameters from the store that the workers write; never writes."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def newest(self, model_id: str) -> tuple[Parameters, Array] | None:
        """Return the event of the newest parameters and theta, d x m; None if the model is missing.

        Raises
        ------
        BrokenChain
            What the store holds does not parse.
        """
        with reachable(self._client):
            # One command, so that the fields belong together.
            fields: Any = self._client.hmget(
                ModelKeys(model_id).head, ["newest", "config", "columns", *_THETAS]
            )
        value, stored_config, columns, exact, published, parameters = fields
        if value is None:
            return None
        try:
            version, config = Version.read(value), parse_config(stored_config, model_id)
            pipeline = read_published(parameters, columns, config)
            shape = (config.d, config.m)
            theta = _theta(exact, published, parameters, shape, f"model {model_id!r}")
        except (ValueError, CorruptState) as error:
            raise BrokenChain(
                f"model {model_id!r}: its newest version in the store does not parse: "
                f"{_line(error)}"
            ) from None
        fitted = () if pipeline is None else pipeline.columns
        return parameters_event(version, config, theta, fitted), theta

    def theta(self, version: Version, shape: tuple[int, int]) -> Array | None:
        """Return a version's theta, d x m; None if the store already holds a newer version.

        Raises
        ------
        StoreUnavailable
            The store does not hold this version yet, or lacks the model.
        BrokenChain
            The store holds something else under this version.
        """
        name = f"model {version.model_id!r}, version {version.version}"
        head = ModelKeys(version.model_id).head
        with reachable(self._client):
            number: Any = self._client.hget(head, "version")
            stored = None if number is None else integer(number, f"{name}, its number in the store")
            if stored is not None and stored > version.version:
                return None
            # One command, so that the fields belong together.
            fields: Any = self._client.hmget(head, ["version", "version_digest", *_THETAS])
        number, digest, exact, published, parameters = fields
        stored = None if number is None else integer(number, f"{name}, its number in the store")
        if stored is None or stored < version.version:
            raise StoreUnavailable(
                f"{name}: its parameters are too large for an event and lie in the store, which "
                f"holds {'no such model' if stored is None else f'version {stored}'}; "
                "connect to the workers' store, or wait until its replica has caught up"
            )
        if stored > version.version:
            return None
        if digest != version.digest.encode():
            raise BrokenChain(f"{name}: the store holds it with another digest; do not load it")
        try:
            return _theta(exact, published, parameters, shape, name)
        except CorruptState as error:
            raise BrokenChain(str(error)) from None


def _theta(
    exact: bytes | None,
    published: bytes | None,
    parameters: bytes | None,
    shape: tuple[int, int],
    what: str,
) -> Array:
    """Return the published theta of a head.

    With preprocessing it is ``parameters``; else, if its bytes are empty, it equals theta_exact.
    """
    source = parameters or (exact if published == b"" else published)
    return unpack(source, shape, f"{what}, theta in the store")


class ParametersReader:
    """Finds the parameters of one model's versions; callers ask in ascending order.

    Parameters
    ----------
    reader
        Used by this object alone.
    model_id
        The model.
    store
        Holds parameters that are too large for an event; None if there is no store.
    must_be_signed
        The trusted keys, and whether an event of a version must be signed by one of them; None:
        signatures are not checked.
    """

    def __init__(
        self,
        reader: Reader,
        model_id: str,
        store: StoredParameters | None,
        must_be_signed: MustBeSigned | None = None,
    ) -> None:
        self._reader = reader
        self._model_id = model_id
        self._key = model_id.encode()
        self._store = store
        self._must_be_signed = must_be_signed
        self._cursors: list[_Cursor] = []
        self._ahead: dict[tuple[int, str], _Place] = {}
        self._found: Parameters | None = None

    def find(self, version: Version) -> ModelVersion | None:
        """Return a version's verified parameters from the topic; None if they are gone.

        Raises
        ------
        BrokenChain
            A record of the model was altered, or is not what the chain names.
        InvalidData
            The parameters are in the store, and no store is configured.
        StoreUnavailable
            They are in the store, which is down or behind; try again.
        """
        event = self._found
        if event is None or event.digest != version.digest:
            try:
                event = self._search(version)
            except LogReset:  # the topic was recreated, or retention passed our position
                self._cursors, self._ahead = [], {}
                event = self._search(version)
        self._found = event  # kept for the next try when the store that holds its theta is down
        return None if event is None else self._load(event, version)

    def find_stored(self, version: Version) -> ModelVersion | None:
        """Return a version's verified parameters from the store, if they are its newest."""
        if self._store is None:
            return None
        newest = self._store.newest(self._model_id)
        if newest is None or newest[0].version != version.version:
            return None
        event, theta = newest
        return self._load(event, version, theta)

    def _search(self, version: Version) -> Parameters | None:
        place = self._ahead.get((version.version, version.digest))
        event = self._scan(version) if place is None else self._read_again(place)
        self._ahead = {name: at for name, at in self._ahead.items() if name[0] > version.version}
        return event

    def _scan(self, version: Version) -> Parameters | None:
        """Read on to this version's event, and remember where later ones lie.

        Only the chain says which parameters count. Some may belong to no version of it: those that
        were published right before the store lost their commit, whose version was made again.
        """
        self._find_partitions()
        # First the partition that the producer uses; others matter only if partitions were added.
        home = partition_index(self._key, max(len(self._cursors), 1))
        for cursor in self._cursors[home:] + self._cursors[:home]:
            # The version is known, so its parameters lie below the partition's end now.
            end: int | None = None
            while True:
                while cursor.waiting:
                    record = cursor.waiting.popleft()
                    event = self._parse_published(record)
                    if event is None:
                        continue
                    if self._is_of(event, version):
                        return event
                    if event.version > version.version:
                        place = _Place(record.partition, record.offset)
                        self._ahead.setdefault((event.version, event.digest), place)
                end = self._reader.bounds(cursor.partition).end if end is None else end
                if cursor.offset >= end:
                    break
                records, cursor.offset = self._reader.read(
                    cursor.partition, cursor.offset, _READ_SECONDS, _BATCH
                )
                cursor.waiting += (record for record in records if record.key == self._key)
        return None

    def _read_again(self, place: _Place) -> Parameters | None:
        records, _ = self._reader.read(place.partition, place.offset, _READ_SECONDS, 1)
        if not records or records[0].offset != place.offset or records[0].key != self._key:
            return None  # compaction has taken it, so there is a newer one
        return self._parse_published(records[0])

    def _find_partitions(self) -> None:
        partitions = self._reader.partitions(topics.MODELS)
        for partition in partitions[len(self._cursors) :]:
            self._cursors.append(_Cursor(partition, self._reader.bounds(partition).begin))

    def _parse_published(self, record: Record) -> Parameters | None:
        """Return the event in a record of the topic; None if no trusted key signed what must be."""
        if self._must_be_signed is None:
            return self._parse(record)
        trusted, needed = self._must_be_signed
        signed = is_believed(record, trusted)
        try:
            event = self._parse(record)
        except BrokenChain as error:
            if signed and not isinstance(error, OfAnother):
                raise
            return None
        return event if signed or not needed(event.version) else None

    def _is_of(self, event: Parameters, version: Version) -> bool:
        """Return whether an event holds a version's parameters.

        Where keys are trusted, an event of before the first signature may be anybody's: it counts
        if it is right.
        """
        if (event.version, event.digest) != (version.version, version.digest):
            return False
        if self._must_be_signed is None or self._must_be_signed[1](event.version):
            return True
        try:
            self._check(event, version)
        except BrokenChain:
            return False
        return True

    def _parse(self, record: Record) -> Parameters:
        """Return the event in a record of this model, checked against its own digest."""
        data = read_object(record, MODEL_PARAMETERS, self._model_id)
        try:
            event = Parameters.model_validate(data)
            theta = None if event.theta is None else version_chain.theta_of(event)
            digest = None if theta is None else version_chain.digest_of(event, theta)
        except (ValueError, RecursionError) as error:  # also names that have no UTF-8 bytes
            raise BrokenChain(
                f"model {self._model_id!r}: the record in {record.partition.topic} at offset "
                f"{record.offset} is not a parameters event: {_line(error)}"
            ) from None
        if digest is not None and event.parameters_digest != digest:
            raise BrokenChain(
                f"{_name(event)}: its parameters do not match their own digest; do not load them"
            )
        return event

    def _load(
        self, event: Parameters, version: Version, theta: Array | None = None
    ) -> ModelVersion | None:
        """Return verified parameters; ``theta`` if the caller has read it already."""
        self._check(event, version, theta)
        if theta is None and event.theta is None:
            theta = self._fetch(event, version)
            if theta is None:
                return None
            version_chain.check_parameters(event, version, theta)
        elif theta is None:
            theta = version_chain.theta_of(event)
        names = event.feature_names, event.target_names
        return ModelVersion.of(version, *names, theta, event.classes, event.columns)

    def _check(self, event: Parameters, version: Version, theta: Array | None = None) -> None:
        """Raise `BrokenChain` if an event is not a version's, or points to another place."""
        for field_name in IDENTITY:
            if getattr(event, field_name) != getattr(version, field_name):
                raise BrokenChain(
                    f"{_name(event)}: the {field_name} of its parameters is not that of the "
                    "version; do not load them"
                )
        if theta is None and event.theta is not None:
            theta = version_chain.theta_of(event)
        if theta is not None:
            version_chain.check_parameters(event, version, theta)
        elif event.uri != f"lethe-store:{ModelKeys(self._model_id).head}#published":
            raise BrokenChain(
                f"{_name(event)}: its parameters lie at {event.uri!r}, which is not this model's "
                "place in a Lethe store; do not load them"
            )

    def _fetch(self, event: Parameters, version: Version) -> Array | None:
        """Return theta from the store."""
        if self._store is None:
            raise InvalidData(
                f"{_name(event)}: its parameters are too large for an event and lie in the store; "
                "connect with redis=... (or LETHE_REDIS_URL) as well"
            )
        d = len(event.feature_names) + int(event.fit_intercept)
        return self._store.theta(version, (d, event.outputs))


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _name(event: Parameters) -> str:
    return f"model {event.model_id!r}, version {event.version}"
