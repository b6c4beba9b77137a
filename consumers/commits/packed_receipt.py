"""A receipt in the request index: about 100 bytes, which give back the published bytes.

    F (final) or P (pending) | layout | digest of the request's content (16)
    | place in the receipt log, status, code, counts, version, generation (varints)
    | error, source, time (ms), commitment (32), anything else that is present

A receipt that the packed layout cannot hold (a code of a later release, say) is kept as JSON.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from lethe.consumers.commits.commit import KeptReceipt
from lethe.consumers.contract import codes, topics
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt, ReceiptStatus
from lethe.consumers.contract.requests import BODY_BYTES
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.records import (
    CertificateRecord,
    ErrorRecord,
    OutputCertificateRecord,
)

_JSON, _PACKED = 0, 1
_STATUSES: tuple[ReceiptStatus, ...] = get_args(ReceiptStatus)
_ErrorKind = Literal["exact", "estimate", "certificate", "unknown"]
_KINDS: tuple[_ErrorKind, ...] = get_args(_ErrorKind)
_PACKED_CODES = (
    None,
    codes.UNKNOWN_ROWS,
    codes.INVALID_REQUEST,
    codes.TOO_MANY_ROWS,
    codes.ILL_CONDITIONED,
    codes.AWAITING_REBUILD,
    codes.GENERATION_FULL,
    codes.CERTIFICATE_SPENT,
    codes.ONE_CLASS_LEFT,
    codes.CLASS_EMPTIED,
    codes.MODEL_UNREGISTERED,
    codes.DATA_LOST,
    codes.VERSIONS_SPENT,
)
"""Codes with a number in the packed form; a receipt with any other is kept as JSON.

Their positions are stored, so only append. A release that does not know a code that was appended
takes the receipt for damaged.
"""

_HAS_ERROR, _HAS_COMMITMENT, _HAS_DETAIL, _HAS_CERTIFICATE = 1, 2, 4, 8
_HAS_VALUE, _HAS_BOUND, _BOUND_IS_VALUE, _HAS_RELATIVE, _IS_ROUNDED = 4, 8, 16, 32, 64
_DOUBLE = struct.Struct("<d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the index holds about a request."""

    final: bool
    body: bytes
    place: int
    receipt: Receipt


def pack(answer: KeptReceipt) -> bytes:
    """Return what the index keeps of an answer."""
    receipt = answer.receipt
    out = bytearray(b"F" if receipt.final else b"P")
    fits = (
        receipt.code in _PACKED_CODES
        and receipt.source.topic == topics.DELETIONS
        and receipt.conflicts_with is None
        and not isinstance(receipt.certificate, OutputCertificateRecord)
    )
    out.append(_PACKED if fits else _JSON)
    out += answer.body
    _varints(out, answer.place + 1)
    if not fits:
        return bytes(out + answer.value)
    error, commitment = receipt.error, receipt.rows_commitment
    certificate, detail = receipt.certificate, receipt.detail
    present = (
        _HAS_ERROR * (error is not None)
        + _HAS_COMMITMENT * (commitment is not None)
        + _HAS_DETAIL * (detail is not None)
        + _HAS_CERTIFICATE * (certificate is not None)
    )
    out.append(_STATUSES.index(receipt.status) << 4 | present)
    out.append(_PACKED_CODES.index(receipt.code))
    _varints(
        out,
        receipt.rows_deleted + 1,
        receipt.rows_unknown + 1,
        0 if receipt.version is None else receipt.version + 1,
        0 if receipt.generation is None else receipt.generation + 1,
        receipt.source.partition + 1,
        receipt.source.offset + 1,
        (receipt.completed_at - _EPOCH) // _MILLISECOND + 1,
    )
    if error is not None:
        _pack_error(out, error)
    if commitment is not None:
        out += bytes.fromhex(commitment)
    if detail is not None:
        text = detail.encode()
        _varints(out, len(text))
        out += text
    if certificate is not None:
        numbers = certificate.model_dump().values()
        out += struct.pack(f"<{len(numbers)}d", *numbers)
    return bytes(out)


def body_of(stored: bytes) -> bytes:
    """Return the digest of the request's content, without reading the rest."""
    return stored[2 : 2 + BODY_BYTES]


def unpack(stored: bytes, model_id: str, request_id: str) -> Indexed:
    """Unpack what `pack` returned.

    Raises
    ------
    CorruptState
        `pack` did not return these bytes.
    """
    what = f"model {model_id!r}, request {request_id!r}: its receipt in the store"
    try:
        reader = _Reader(stored, 2 + BODY_BYTES)
        place = reader.varint() - 1
        if stored[1] == _JSON:
            receipt = Receipt.read(stored[reader.at :])
        elif stored[1] == _PACKED:
            receipt = _unpack(reader, model_id, request_id)
        else:
            raise CorruptState(f"{what} is of a later release; upgrade this worker")
        reader.check(stored[:1] == (b"F" if receipt.final else b"P"))
    except (ValueError, IndexError, struct.error, OverflowError):
        raise CorruptState(f"{what} is damaged; run `lethe check`") from None
    return Indexed(receipt.final, body_of(stored), place, receipt)


# -- packing --------------------------------------------------------------------------------------


def _pack_error(out: bytearray, error: ErrorRecord) -> None:
    bound_is_value = error.bound is not None and error.bound == error.value
    if not error.bound:  # zero and minus zero differ in the published bytes
        bound_is_value = bound_is_value and repr(error.bound) == repr(error.value)
    out.append(
        (_IS_ROUNDED if error.kind == "rounded" else _KINDS.index(error.kind))
        | _HAS_VALUE * (error.value is not None)
        | _HAS_BOUND * (error.bound is not None and not bound_is_value)
        | _BOUND_IS_VALUE * bound_is_value
        | _HAS_RELATIVE * (error.relative is not None)
    )
    certified = error.certified_version
    _varints(out, 0 if certified is None else certified + 1)
    bound = None if bound_is_value else error.bound
    numbers = [x for x in (error.value, bound, error.relative, error.budget) if x is not None]
    out += struct.pack(f"<{len(numbers)}d", *numbers)


def _varints(out: bytearray, *numbers: int) -> None:
    """Append non-negative numbers: 7 bits per byte, the lowest first."""
    for each in numbers:
        number = each
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)


# -- unpacking ------------------------------------------------------------------------------------


class _Reader:
    """Takes values off a packed receipt, from the front."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def check(self, sound: bool) -> None:
        if not sound:
            raise ValueError("it does not fit together")

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def double(self) -> float:
        [number] = _DOUBLE.unpack_from(self.data, self.at)
        self.at += _DOUBLE.size
        return float(number)

    def bytes(self, length: int) -> bytes:
        if self.at + length > len(self.data):
            raise ValueError("it is cut short")
        self.at += length
        return self.data[self.at - length : self.at]


def _unpack(reader: _Reader, model_id: str, request_id: str) -> Receipt:
    status_and_flags, code = reader.bytes(2)
    numbers = [reader.varint() - 1 for _ in range(7)]
    deleted, unknown, version, generation, partition, offset, milliseconds = numbers
    error = _unpack_error(reader) if status_and_flags & _HAS_ERROR else None
    commitment = reader.bytes(32).hex() if status_and_flags & _HAS_COMMITMENT else None
    detail = reader.bytes(reader.varint()).decode() if status_and_flags & _HAS_DETAIL else None
    certificate = None
    if status_and_flags & _HAS_CERTIFICATE:
        names = CertificateRecord.model_fields
        certificate = CertificateRecord(**{name: reader.double() for name in names})
    if reader.at != len(reader.data):
        raise ValueError("something follows it")
    return Receipt(
        request_id=request_id,
        model_id=model_id,
        status=_STATUSES[status_and_flags >> 4],
        code=_PACKED_CODES[code],
        detail=detail,
        rows_deleted=deleted,
        rows_unknown=unknown,
        version=None if version < 0 else version,
        generation=None if generation < 0 else generation,
        error=error,
        source=Source(topic=topics.DELETIONS, partition=partition, offset=offset),
        completed_at=_EPOCH + milliseconds * _MILLISECOND,
        rows_commitment=commitment,
        certificate=certificate,
    )


def _unpack_error(reader: _Reader) -> ErrorRecord:
    [kind_and_flags] = reader.bytes(1)
    certified = reader.varint() - 1
    value = reader.double() if kind_and_flags & _HAS_VALUE else None
    bound = reader.double() if kind_and_flags & _HAS_BOUND else None
    if kind_and_flags & _BOUND_IS_VALUE:
        bound = value
    relative = reader.double() if kind_and_flags & _HAS_RELATIVE else None
    return ErrorRecord(
        value=value,
        kind="rounded" if kind_and_flags & _IS_ROUNDED else _KINDS[kind_and_flags & 3],
        bound=bound,
        certified_version=None if certified < 0 else certified,
        budget=reader.double(),
        relative=relative,
    )
