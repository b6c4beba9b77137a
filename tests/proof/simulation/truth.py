"""What the commits in the log come to, taken one by one as they land: the simulation's own judge.

The reading is that of `tests.proof.independent_fold`, which shares nothing with the product. Each
commit is judged when it lands, and each event when it becomes visible: so a promise is seen to be
broken at the step that breaks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.contract.version_chain import check_parameters, theta_of
from lethe.consumers.log.base import Message, Record
from tests.proof import independent_fold
from tests.proof.independent_fold import ModelFold
from tests.proof.live_rows import BodyOf, LiveRows, Row, ValueAt


class Truth:
    """All models by the log alone.

    Parameters
    ----------
    value_at, body_of
        Read the log.
    secrets
        What commits may be sealed with; more may be added.

    Attributes
    ----------
    models, rows
        By model id: what its commits come to, and its live rows.
    staged
        By the name of a staged generation, the rows that it brings, where somebody was erased.
    """

    def __init__(self, value_at: ValueAt, body_of: BodyOf, *secrets: bytes) -> None:
        self.models: dict[str, ModelFold] = {}
        self.rows: dict[str, LiveRows] = {}
        self.staged: dict[str, frozenset[str]] = {}
        self._value_at, self._body_of = value_at, body_of
        self.late: list[str] = []
        self._keys: dict[str, bytes] = {}
        self._sent: dict[str, set[bytes]] = {}
        self._versions: dict[str, dict[str, bytes]] = {}
        for secret in secrets:
            self.add_secret(secret)

    def add_secret(self, secret: bytes) -> None:
        """Let commits be sealed with another secret."""
        self._keys[independent_fold.name_of(secret)] = secret

    def plan(self, model_id: str, rows: Mapping[str, Row]) -> None:
        """Know the rows that every registration of a model brings."""
        self.rows[model_id] = LiveRows(rows, self._value_at, self._body_of, self.staged)

    # -- commits ------------------------------------------------------------------------------

    def take(self, record: Record) -> str:
        """Judge a record of ``lethe.commits`` as it lands; return a line about it.

        Raises
        ------
        AssertionError
            It breaks a promise: a row is deleted twice, comes back or changes out of order, a
            request gets another outcome or a false one, a number is skipped, or what the commit
            says of itself does not hold.
        """
        found = independent_fold.read_record(record.offset, record.value)
        assert found is not None, "somebody appended what is no commit"
        name = found.open["model_id"]
        model = self.models.setdefault(name, ModelFold())
        deleted = set(model.ledger)
        before, finals = len(model.commits), len(model.log)
        independent_fold.take(model, found, record.partition.index, self._keys)
        assert not model.gap, f"{name}: commit {found.number} is ahead of {model.head[0]}"
        what = f"{name}: commit {found.number} at {record.partition.index}/{record.offset}"
        if len(model.commits) == before:
            return f"{what} is void"
        header = model.commits[-1][2]
        if header["kind"] != "registration":
            twice = deleted.intersection(header["deleted"])
            assert not twice, f"{what} deletes {sorted(twice)} again"
        assert len(set(header["deleted"])) == len(header["deleted"]), f"{what} names a row twice"
        self.rows[name].take(header, model.log[finals:])
        return f"{what}: {header['kind']}"

    def generation(self, model_id: str) -> tuple[int, str] | None:
        """Return number and staged generation of a model's newest registration."""
        found = None
        for number, (_, _, header) in enumerate(self._of(model_id).commits):
            if header["kind"] == "registration":
                found = number, header["staged"]["generation"]
        return found

    def registered(self, model_id: str) -> bool:
        """Return whether requests change a model."""
        model = self._of(model_id)
        return bool(model.commits) and model.meta["status"] != "UNREGISTERED"

    def _of(self, model_id: str) -> ModelFold:
        return self.models.get(model_id, ModelFold())

    # -- events -------------------------------------------------------------------------------

    def check_visible(self, message: Message) -> None:
        """Check that an event which becomes visible is said by a commit that counts by now.

        Raises
        ------
        AssertionError
            It is not.
        """
        value = message.value or b""
        event = json.loads(value)
        name = event["model_id"]
        model = self._of(name)
        if message.topic == topics.VERSIONS:
            assert value in model.versions, f"{name}: version {event['version']} is in no commit"
        elif message.topic == topics.MODELS:
            self._check_parameters(model, event, value)
        elif value not in model.sent:
            assert event["code"] != "MODEL_UNREGISTERED", f"{name}: {event} is in no commit"
            self._check_before(model, event)

    @staticmethod
    def _check_parameters(model: ModelFold, event: dict[str, Any], value: bytes) -> None:
        versions = {version["digest"]: version for version in map(json.loads, model.versions)}
        found = versions.get(event["digest"])
        assert found is not None, f"parameters of version {event['version']} are in no commit"
        parameters = Parameters.model_validate_json(value)
        check_parameters(parameters, Version.model_validate(found), theta_of(parameters))

    @staticmethod
    def _check_before(model: ModelFold, event: dict[str, Any]) -> None:
        """Check an answer that is in no commit: its request came before its model."""
        what = f"{event['model_id']}: {event} is in no commit"
        assert event["status"] == "REJECTED", what
        if model.opening is None:
            return
        source, index = event["source"], f"/{event['source']['partition']}"
        openings = [at for place, at in model.opening.items() if place.endswith(index)]
        assert any(source["offset"] < at for at in openings), what
