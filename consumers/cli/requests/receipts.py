"""Waiting for what workers answer, and a receipt in words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from lethe.consumers.cli.terminal.output import counted, error_number, number
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.engine.errors import InvalidRequest, Unavailable

_READ_SECONDS = 0.5
_READ_RECORDS = 500


class NoReceipt(Unavailable):
    """No final receipt came in time; the request is in the log and will be processed."""

    code = "NO_RECEIPT"
    exit_code = 1


def receipts_partition(reader: Reader, model_id: str, requests: str) -> Partition:
    """Return the partition that the receipt of a request in topic ``requests`` is published on.

    Raises
    ------
    InvalidRequest
        A topic does not exist.
    """
    check_topics(reader, requests, topics.RECEIPTS)
    return reader.partition_for(topics.RECEIPTS, model_id.encode())


def check_topics(reader: Reader, requests: str, receipts: str) -> None:
    """Refuse to send to a topic that does not exist.

    Raises
    ------
    InvalidRequest
        That of the requests does not exist, or that of their receipts.
    """
    if not (reader.partitions(requests) and reader.partitions(receipts)):
        raise InvalidRequest(
            f"the topics {requests} and {receipts} do not exist; `lethe register` and `lethe work` "
            "create them. Nothing was sent"
        )


def new_records(
    reader: Reader,
    partition: Partition,
    offset: int,
    deadline: float,
    trusted: TrustedKeys | None,
) -> Iterator[Sequence[Record]]:
    """Yield what is appended from an offset on, as it comes, until a deadline of the clock.

    While nothing comes, it yields an empty sequence twice a second. With ``trusted`` keys, it
    passes over what none of them signed.
    """
    while time.monotonic() < deadline:
        pause = min(_READ_SECONDS, max(0.0, deadline - time.monotonic()))
        records, offset = reader.read(partition, offset, pause, _READ_RECORDS)
        yield [record for record in records if is_believed(record, trusted)]


def receipt_in(record: Record, model_id: str, request_id: str) -> Receipt | None:
    """Return a record's receipt if it belongs to a request."""
    try:
        receipt = Receipt.read(record.value or b"")
    except ValueError:
        return None
    return receipt if (receipt.model_id, receipt.request_id) == (model_id, request_id) else None


def what_changed(receipt: Receipt) -> str:
    """Return in words what a request did to rows."""
    if receipt.op == "insert":
        return f"{counted(receipt.rows_inserted, 'row')} inserted"
    if receipt.op == "correct":
        return f"{counted(receipt.rows_corrected, 'row')} corrected"
    return f"{counted(receipt.rows_deleted, 'row')} deleted"


def sentence(receipt: Receipt) -> str:
    """Return a receipt as a line."""
    parts = [f"request {receipt.request_id}: {receipt.status}"]
    if receipt.code:
        parts.append(f"{receipt.code}: {receipt.detail}" if receipt.detail else receipt.code)
    if receipt.final and receipt.status != "REJECTED":
        unknown = f", {receipt.rows_unknown} unknown" if receipt.rows_unknown else ""
        parts.append(f"{what_changed(receipt)}{unknown}, version {receipt.version}")
    if receipt.final and receipt.error is not None:
        error = receipt.error
        parts.append(f"error {error_number(error.relative)} of a budget of {number(error.budget)}")
    return "; ".join(parts)
