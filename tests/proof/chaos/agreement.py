"""What was published and what is stored, against a fold that was written apart from the product."""

from __future__ import annotations

from collections import defaultdict

from lethe.consumers.contract import topics
from tests.proof.agreement import check_published, check_store
from tests.proof.chaos.facts import Verdict
from tests.proof.chaos.history import History
from tests.proof.independent_fold import Disagreement, ModelFold, fold


def agrees_with_its_commits(history: History, *secrets: bytes) -> Verdict:
    """Topics, ledger, offsets, receipts and their log are what the commits come to, and no more."""
    verdict = Verdict("things said by topics or by the store, and not by the commits")
    partitions: dict[int, list[bytes | None]] = defaultdict(list)
    for record in history.topics[topics.COMMITS]:
        values = partitions[record.source[1]]
        values += [None] * (record.source[2] - len(values)) + [record.value]
    try:
        models = fold(partitions, *secrets)
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


def _of_store(history: History, name: str, model: ModelFold) -> str | None:
    final = history.finals[name]
    model.offsets = {part.rpartition("/")[2]: at for part, at in model.offsets.items()}
    try:
        check_store(
            model,
            head=(final.commit, final.commit_digest),
            version=final.version,
            ledger=final.ledger,
            offsets={str(part): at for part, at in final.offsets.items()},
            finals={r: said.encode() for r, (mark, said) in final.receipts.items() if mark == "F"},
            deferred=(),
        )
    except Disagreement as error:
        return str(error)[:1000]
    return None
