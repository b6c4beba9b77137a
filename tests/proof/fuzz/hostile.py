"""Inputs that nobody should send: valid ones with one thing wrong, and things far too large."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from hypothesis import strategies as st

from tests.proof.fuzz.contract import SEPARATOR

TOKENS: tuple[bytes, ...] = (
    b"1e400",
    b"-1e400",
    b"NaN",
    b"-Infinity",
    b"9" * 5000,
    b"0." + b"9" * 5000,
    b"-1",
    b"-0.0",
    b"0",
    b"1e-400",
    b"9007199254740993",
    b"18446744073709551616",
    b"true",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b'"\xf0\x9f\x98\x80"',
    b'"\xed\xa0\x80"',
    b'"' + b"a" * 300 + b'"',
    b'"0001-01-01T00:00:00+23:59"',
    b'"9999-12-31T23:59:59-23:59"',
    b'"Infinity"',
    b'"1"',
    b"1.0",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"[" * 900 + b"]" * 900,
    b'{"a":1,"a":2}',
    b"[1,[2,[3,[]]]]",
    b"\xff\xfe",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"\0\0\0\0\0\0\xf0\x7f",  # infinity
    b"\0\0\0\0\0\0\xf8\x7f",  # no number
    SEPARATOR,
)
"""What takes the place of one value of a valid input, or is put into it."""

_VALUE = re.compile(
    rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[\[\]{},:]'
)


def bombs(size: int) -> list[bytes]:
    """Return inputs of about ``size`` bytes that cost as much as can be."""

    def repeated(unit: bytes, head: bytes = b"[", tail: bytes = b"0]") -> bytes:
        return head + unit * (size // len(unit)) + tail

    members = b",".join(b'"%x":0' % i for i in range(size // 9))
    return [
        repeated(b"[],"),
        repeated(b"{},"),
        repeated(b'{"a":1},'),
        repeated(b"0.5,"),
        repeated(b'"ab",'),
        repeated(b'"",'),
        repeated(b'"\\u00fc",'),
        repeated(b"0,", b'{"request_id":"r","model_id":"m","row_ids":[', b"0]}"),
        repeated(b"0,", b'{"request_ids":[', b"0]}"),
        repeated(b'"x",', b'{"model_id":"churn","theta":[', b'0],"feature_names":[]}'),
        repeated(b"[0],", b'{"model_id":"churn","theta":[', b'[0]],"feature_names":[]}'),
        repeated(b"0,", b'{"config":{"model_id":"m","feature_names":[', b"0]}}"),
        b"{" + members + b"}",
        b"[" * size,
        b'{"a":' * (size // 5),
        b"9" * size,
        b'"' + b"a" * size + b'"',
        b'"' + b"\\ud800" * (size // 6) + b'"',
        b"\0" * size,
        b"\xff" * size,
        b"\n" * size,
        b"a\n" * (size // 2),
        b"id,y,x,who\n" + b"1,1,1,1\n" * (size // 8),
        (b"\0" * 8) * (size // 8),  # headers without names and values
        SEPARATOR * (size // len(SEPARATOR)),
    ]


def spoil(data: bytes, draw: random.Random) -> bytes:
    """Return an input with one thing wrong."""
    kind = draw.randrange(8)
    at = draw.randrange(len(data) + 1)
    end = min(len(data), at + draw.choice((1, 2, 4, 8, 16, 64)))
    if kind <= 2:
        found = [*_VALUE.finditer(data)]
        if found:
            at, end = draw.choice(found).span()
        return data[:at] + draw.choice(TOKENS) + data[end:]
    if kind == 3:
        return data[:at] + draw.choice(TOKENS) + data[at:]
    if kind == 4:
        return data[:at] + data[end:]
    if kind == 5:
        return data[:end] + data[at:end] + data[end:]
    if kind == 6:
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    return data[:at]


def spoilt(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return inputs that are nearly valid, or not at all."""

    def build(seed: bytes, numbers: list[int]) -> bytes:
        for number in numbers:
            seed = spoil(seed, random.Random(number))
        return seed

    nearly = st.builds(
        build, st.sampled_from(list(seeds)), st.lists(st.integers(0, 1 << 32), max_size=4)
    )
    return st.one_of(nearly, nearly, nearly, st.binary(max_size=200))
