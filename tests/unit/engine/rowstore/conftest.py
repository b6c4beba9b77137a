"""Small buckets, so that a few rows fill many of them."""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from itertools import count
from pathlib import Path

import pytest

from lethe.engine.rowstore import writer
from lethe.engine.rowstore.files import Files
from tests.support.row_files import where


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """About 5 rows a bucket, 7 a part of the index, 20 a pile, 50 in memory."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 600)
    monkeypatch.setattr(writer, "INDEX_ROWS", 7)
    monkeypatch.setattr(writer, "PILE_BYTES", 2_000)
    monkeypatch.setattr(writer, "_HELD_BYTES", 5_000)


@pytest.fixture(autouse=True)
def _salts_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same salts in every run, another one for each registration."""
    drawn = count()

    def salt(size: int) -> bytes:
        return blake2b(b"%d" % next(drawn), digest_size=size).digest()

    monkeypatch.setattr(secrets, "token_bytes", salt)


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(params=["directory", "mock"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Each kind of place for files, empty."""
    return where(request.param, tmp_path)
