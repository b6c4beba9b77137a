"""What was published and what is stored, against a fold that was written apart from the product."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from lethe.consumers.contract import topics
from tests.proof.agreement import check_published, check_store
from tests.proof.chaos.facts import Verdict
from tests.proof.chaos.history import History, Json, answered_by, by_source
from tests.proof.independent_fold import Disagreement, ModelFold, fold
from tests.proof.live_rows import LiveRows, rows_of


def agrees_with_its_commits(history: History, *secrets: bytes) -> Verdict:
    """Topics, ledger, offsets, receipts, disclosures: what the commits come to, and no more."""
    verdict = Verdict("things said by topics or by the store, and not by the commits")
    try:
        models = _folded(history, *secrets)
        receipts, versions = (
            [record.value for record in history.topics[topic]]
            for topic in (topics.RECEIPTS, topics.VERSIONS)
        )
        check_published(models, receipts, versions)
    except Disagreement as error:
        verdict.check(good=False, what=str(error)[:1000])
        return verdict
    verdict.cases = len(receipts) + len(versions)
    verdict.notes["void records"] = sum(model.void for model in models.values())
    for model in history.finals:
        wrong = _of_store(history, model, models[model])
        verdict.check(wrong is None, f"{model}: {wrong}")
    return verdict


def read_rows(history: History, *secrets: bytes) -> None:
    """Work out the live rows of each model, version by version.

    Raises
    ------
    Disagreement
        A commit changes rows, or a receipt says of rows, what cannot be (`tests.proof.live_rows`).
    """
    at = by_source(record for one in history.topics.values() for record in one)

    def value_at(place: str, offset: int) -> bytes:
        return at[(*history.places[place], offset)][-1].value

    def body_of(receipt: Mapping[str, Any]) -> Json:
        request = answered_by(dict(receipt), at)
        if request is None or request.data is None:
            raise Disagreement(f"{receipt['request_id']}: its receipt names another record")
        return request.data

    models = _folded(history, *secrets)
    for name, data in history.data.items():
        model, rows = models[name], LiveRows(rows_of(data), value_at, body_of)
        for _, _, header in model.commits:
            finals = [model.log[place] for _, place in header["bodies"] if place >= 0]
            rows.take(header, finals)
        history.rows[name] = rows


def _folded(history: History, *secrets: bytes) -> dict[str, ModelFold]:
    partitions: dict[int, list[bytes | None]] = defaultdict(list)
    for record in history.topics[topics.COMMITS]:
        values = partitions[record.source[1]]
        values += [None] * (record.source[2] - len(values)) + [record.value]
    return fold(partitions, *secrets)


def _of_store(history: History, name: str, model: ModelFold) -> str | None:
    final = history.finals[name]
    try:
        check_store(
            model,
            head=(final.commit, final.commit_digest),
            version=final.version,
            ledger=final.ledger,
            offsets=final.offsets,
            finals={r: said.encode() for r, (mark, said) in final.receipts.items() if mark == "F"},
            deferred=(),
        )
    except Disagreement as error:
        return str(error)[:1000]
    return None if final.disclosed == model.disclosed else "other disclosures are stored"
