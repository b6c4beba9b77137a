"""What a worker reports of the requests it processed: metrics and log lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lethe.consumers.commits.commit import CommitKind, LoggedCommit
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.authenticate import UNAUTHENTICATED
from lethe.consumers.deletions.rounds import Prepared
from lethe.consumers.deletions.validate import Invalid, Refreshed, Validated
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics

_NAMED = 16  # request ids in the line of a commit; at DEBUG each request has its own line


def report_decisions(
    metrics: Metrics,
    logger: Logger,
    prepared: Prepared,
    logged: LoggedCommit,
    records: Sequence[Validated],
) -> None:
    """Count and log the outcomes of a commit's records: at DEBUG each has a line."""
    commit = logged.commit
    if commit.kind is CommitKind.REFRESH:
        logger.info(
            prepared.message,
            action="swap" if commit.version is not None else "drop_result",
            model=commit.model_id,
            version=commit.newest,
        )
        return
    if commit.erased:
        metrics.batch_rows.observe(len(commit.erased))
        metrics.rows_deleted.labels(commit.model_id).inc(len(commit.erased))
    if records:
        metrics.step_seconds.observe(prepared.seconds)
    statuses = {answer.receipt.request_id: answer.receipt.status for answer in commit.answers}
    outcomes: Counter[str] = Counter()
    ids: list[str] = []
    for item in records:
        if isinstance(item, Refreshed):
            continue
        request_id = item.request_id
        if request_id is None:
            continue  # a dead letter and nothing else: `report_without_commit`
        status = statuses.get(request_id, "REPEATED")
        outcomes[status] += 1
        ids.append(request_id)
        logger.debug(
            "record processed",
            action="decide",
            request_id=request_id,
            status=status,
            model=commit.model_id,
            version=commit.newest,
            partition=item.record.partition.index,
            offset=item.record.offset,
        )
    for status, number in outcomes.items():
        metrics.requests.labels(status).inc(number)
    logger.info(
        "commit applied",
        action="commit",
        model=commit.model_id,
        commit=commit.number,
        version=commit.newest,
        partition=prepared.group.partition.index,
        offset=logged.place.offset,
        rows=len(commit.erased),
        requests=dict(outcomes),
        request_ids=ids[:_NAMED],
    )


def report_without_commit(
    metrics: Metrics, logger: Logger, unknown: Sequence[Receipt], letters: Sequence[Invalid]
) -> None:
    """Count and log what makes no commit: requests for unregistered models, and dead letters."""
    metrics.dead_letters.inc(len(letters))
    for receipt in unknown:
        metrics.requests.labels(receipt.status).inc()
        logger.info(
            "record processed",
            action="decide",
            request_id=receipt.request_id,
            status=receipt.code,
            model=receipt.model_id,
            partition=receipt.source.partition,
            offset=receipt.source.offset,
        )
    for item in letters:
        unauthenticated = item.code == UNAUTHENTICATED
        metrics.unauthenticated.inc(unauthenticated)
        if item.request_id is not None and not unauthenticated:
            continue  # it has a receipt, which is reported already
        logger.warning(
            "dead letter",
            action="decide",
            status=item.code if unauthenticated else "UNREADABLE",
            partition=item.record.partition.index,
            offset=item.record.offset,
        )
