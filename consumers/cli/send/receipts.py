"""Receipts of one model's requests: found in records, and in words."""

from __future__ import annotations

from collections.abc import Callable

from lethe.consumers.cli.terminal.output import counted, error_number, number
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.log.base import Record


def receipts_of(model_id: str) -> Callable[[Record], tuple[str, Receipt] | None]:
    """Return what reads the receipts of a model's requests from records, with the requests' ids."""

    def read(record: Record) -> tuple[str, Receipt] | None:
        try:
            receipt = Receipt.read(record.value or b"")
        except ValueError:
            return None
        return (receipt.request_id, receipt) if receipt.model_id == model_id else None

    return read


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
