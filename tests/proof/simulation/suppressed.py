"""Who is erased, by the log alone: the simulation's judge of erasures.

It is told of each record as it lands. Positions in ``lethe.erasures`` decide, whoever writes what
in which order: of two requests about one subject, the later one counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Record
from tests.proof.erased import CHILD, Asked, asked_of, wrong_of
from tests.proof.independent_fold import ModelFold
from tests.proof.live_rows import LiveRows


@dataclass(frozen=True, slots=True)
class Since:
    """A moment: who was on the list, and how many changes it had seen."""

    suppressed: frozenset[str]
    changes: int


@dataclass
class Suppressed:
    """The promises about erasures, judged as records land.

    Attributes
    ----------
    models, rows
        What commits come to (`tests.proof.simulation.truth`).
    counted
        Called with the kind of each event.
    asked
        By id, the first request.
    finals
        By id, the different final receipts in the order in which they came: the first counts.
    """

    models: Mapping[str, ModelFold]
    rows: Mapping[str, LiveRows]
    counted: Callable[[str], None]
    asked: dict[str, Asked] = field(default_factory=dict)
    finals: dict[str, list[bytes]] = field(default_factory=dict)
    _newest: dict[str, Asked] = field(default_factory=dict)  # by subject, of what is on the list
    _changes: list[tuple[str, bool]] = field(default_factory=list)
    _sent: dict[tuple[str, int], Since] = field(default_factory=dict)  # changes of rows
    _marked: dict[str, int] = field(default_factory=dict)  # by erasure id, the moment
    _registered: dict[str, int] = field(default_factory=dict)  # by model, the moment
    _moment: int = 0

    # -- the list -----------------------------------------------------------------------------

    def suppressed(self) -> frozenset[str]:
        """Return who must stay away now."""
        return frozenset(name for name, asked in self._newest.items() if not asked.lifts)

    def now(self) -> Since:
        """Return what is compared later with what happened since."""
        return Since(self.suppressed(), len(self._changes))

    def always(self, since: Since) -> frozenset[str]:
        """Return who was on the list all the time since."""
        lifted = {name for name, on in self._changes[since.changes :] if not on}
        return since.suppressed - lifted

    def ever(self, since: Since) -> frozenset[str]:
        """Return who was on the list at any time since."""
        return since.suppressed | {name for name, on in self._changes[since.changes :] if on}

    # -- records ------------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Judge a record of any topic as it lands.

        Raises
        ------
        AssertionError
            It breaks a promise.
        """
        self._moment += 1
        match record.partition.topic:
            case topics.ERASURES:
                self._ask(record)
            case topics.SUPPRESSIONS:
                self._suppress(json.loads(record.value or b""))
            case topics.ROW_CHANGES:
                self._sent[str(record.partition), record.offset] = self.now()
            case topics.ERASURE_RECEIPTS:
                self._answer(record.value or b"")

    def take_commit(self, model: str) -> None:
        """Judge the newest commit of a model: who was inserted, and who was refused."""
        fold = self.models[model]
        header = fold.commits[-1][2]
        if header["kind"] == "registration":
            self._registered[model] = self._moment
        live = self.rows[model].live
        for inserts, names, partition, offset, _ in header.get("changes", ()):
            if inserts:
                away = self.always(self._sent[partition, offset])
                back = {name for name in names if name in live and live[name].subject in away}
                assert not back, f"{model}: {sorted(back)} of erased subjects are inserted"
        for value in fold.log[len(fold.log) - _answers(header) :]:
            receipt = json.loads(value)
            if receipt["code"] == "SUBJECT_ERASED":
                self.counted("insert of an erased subject refused")
                self._check_refused(receipt)

    def _ask(self, record: Record) -> None:
        name, asked = asked_of(record.value or b"", record.offset, record.timestamp_ms)
        self.asked.setdefault(name, asked)

    def _suppress(self, mark: Mapping[str, Any]) -> None:
        asked = self.asked[mark["erasure_id"]]
        assert asked.lifts is mark["lifted"], f"{mark['erasure_id']}: the list has it otherwise"
        self._marked.setdefault(mark["erasure_id"], self._moment)
        newest = self._newest.get(asked.subject)
        if newest is None or newest.offset < asked.offset:
            self._newest[asked.subject] = asked
            self._changes.append((asked.subject, not asked.lifts))
        elif newest.offset > asked.offset:
            self.counted("suppression written late")

    def _check_refused(self, receipt: Mapping[str, Any]) -> None:
        source = receipt["source"]
        place = f"/{source['partition']}", source["offset"]
        # A topic that was made again has another record at the same place: any of them may be it.
        sent = [at for (name, at_offset), at in self._sent.items()
                if name.endswith(place[0]) and at_offset == place[1]]  # fmt: skip
        assert any(self.ever(since) for since in sent), f"{receipt['request_id']}: nobody is erased"

    # -- registrations ------------------------------------------------------------------------

    def check_staged(self, model: str, rows: Collection[str], since: Since) -> None:
        """Check what a registration brings: all of its rows but the deleted and the erased ones."""
        registered, ledger = self.rows[model].registered, self._ledger(model)
        strange = set(rows) - registered.keys()
        assert not strange, f"{model}: {sorted(strange)} are staged"
        out = registered.keys() - set(rows) - ledger
        may, must = self.ever(since), self.always(since)
        missed = {row for row in out if registered[row].subject not in may}
        assert not missed, f"{model}: {sorted(missed)} are left out, and of nobody who was erased"
        kept = {row for row in rows if registered[row].subject in must}
        assert not kept, f"{model}: {sorted(kept)} of erased subjects are registered"
        if out:
            self.counted("rows of erased subjects left out of a registration")

    def _ledger(self, model: str) -> Set[str]:
        return self.models[model].ledger.keys() if model in self.models else frozenset()

    # -- combined receipts --------------------------------------------------------------------

    def _answer(self, value: bytes) -> None:
        receipt = json.loads(value)
        name = receipt["erasure_id"]
        asked = self.asked[name]
        if receipt["status"] == "PENDING":
            return
        if receipt.get("code") == "REQUEST_ID_CONFLICT":
            self.counted("erasure id used twice")
            assert receipt["conflicts_with"]["offset"] == asked.offset, receipt
            return
        wrong = wrong_of(receipt, asked, self._final_of)
        assert wrong is None, f"{name}: {wrong}"
        self._check_gone(name, asked, receipt)
        finals = self.finals.setdefault(name, [])
        if not finals:
            what = "lift" if asked.lifts else "erasure"
            self.counted(f"{what} {receipt['status'].lower()}")
        elif value in finals:
            self.counted("combined receipt repeated")
        else:
            self.counted("combined receipt repeated otherwise")
        if value not in finals:
            finals.append(value)

    def _final_of(self, model: str, request: str) -> Any:
        value = self.models[model].finals.get(request)
        return None if value is None else json.loads(value)

    def _check_gone(self, name: str, asked: Asked, receipt: Mapping[str, Any]) -> None:
        """Check that no model has a row of the subject, unless it was registered meanwhile.

        One that was registered meanwhile is searched afterwards.
        """
        newest = self._newest.get(asked.subject)
        if asked.lifts or not receipt["complete"] or newest != asked:
            return
        for model, left in self.left([asked.subject]):
            if self._registered[model] < self._marked[name]:
                raise AssertionError(f"{name} is complete, and {model} has {sorted(left)}")
            self.counted("model registered while somebody was erased")

    def left(self, subjects: Iterable[str]) -> list[tuple[str, set[str]]]:
        """Return the models that have live rows of some subjects, with these rows."""
        wanted = set(subjects)
        found = []
        for model, rows in self.rows.items():
            left = {name for name, row in rows.live.items() if row.subject in wanted}
            if left:
                found.append((model, left))
        return found

    # -- the end ------------------------------------------------------------------------------

    def unanswered(self) -> list[str]:
        """Return the erasures and lifts that have no final receipt."""
        return sorted(self.asked.keys() - self.finals.keys())

    def check(self, listed: Collection[str], kept: Iterable[Mapping[str, Any]]) -> None:
        """Check everything at rest.

        Parameters
        ----------
        listed
            Who is on the list by the product's own view.
        kept
            Of the topic, the newest record of each mark: what compaction keeps.
        """
        away = self.suppressed()
        assert set(listed) == away, f"listed: {sorted(listed)}, erased: {sorted(away)}"
        on_topic = {self.asked[one["erasure_id"]].subject for one in kept if not one["lifted"]}
        assert on_topic == away, f"compaction keeps {sorted(on_topic)}, erased: {sorted(away)}"
        for model, left in self.left(away):
            raise AssertionError(f"{model} has {sorted(left)} of subjects that are erased")
        children = Counter(
            name for fold in self.models.values() for name in fold.finals if name.startswith(CHILD)
        )
        self.counted_many("request of an erasure", sum(children.values()))

    def counted_many(self, kind: str, times: int) -> None:
        """Count an event several times."""
        for _ in range(times):
            self.counted(kind)


def _answers(header: Mapping[str, Any]) -> int:
    """Return how many final receipts a commit adds to the log of receipts."""
    return sum(place >= 0 for _, place in header["bodies"])
