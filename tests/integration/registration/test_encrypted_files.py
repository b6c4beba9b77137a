"""Rows in files that are encrypted at rest: as those that are not, and no old copy can be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.health.models import check_model as check
from lethe.consumers.audit.verify import verify
from lethe.engine.errors import CorruptState, RowsMissing, StoreUnavailable
from lethe.engine.fit.objective import Kind, Rows
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import files_at
from lethe.engine.rowstore.manifest import ENCRYPTED, digest_of
from lethe.engine.rowstore.writer import BucketWriter
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.membership import live_members
from lethe.engine.store.offline import staging
from lethe.engine.store.row_files import RowFilesOfModels
from lethe.engine.store.server.sealed_files import SealedFiles
from tests.integration.store.test_erased_data import (
    FOLDED,
    MARKED,
    PLAIN,
    files_of,
    marked_data,
    memory_of,
    rows_in,
)
from tests.integration.store.test_row_keys import sealed, servers
from tests.support.crash_lane import check_row_keys
from tests.support.families import make
from tests.support.invariants import check_model, check_row_files
from tests.support.pipelines import EVERY_KIND
from tests.support.platform import Platform, store_at
from tests.support.prepared import PreparedTable
from tests.support.servers import ValkeyProcess
from tests.support.tables import Table

__all__ = ["sealed", "servers"]

REBUILD = RefreshSize.REBUILD


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts of the index of a hundred rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


@pytest.mark.parametrize(
    ("kind", "family", "exact"),
    [("linear", "benign", True), ("logistic", "benign", False), ("logistic", "classes", False)],
)
def test_versions_of_encrypted_files_are_those_of_rows_in_the_store(
    sealed: Platform, kind: str, family: str, exact: bool
) -> None:
    url = Path(sealed.folder())
    sealed.register("m", family, kind, exact_sums=exact, rows_url=str(url))
    sealed.register("other", family, kind, exact_sums=exact)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        for model in ("m", "other"):
            sealed.send_index(model, *rows)
        sealed.drain()
        same(sealed, exact)
    for model in ("m", "other"):
        sealed.refresh(model, REBUILD)
    same(sealed, exact)
    body = {"request_id": "all", "model_id": "m", "subject_id": "subject-4"}
    sealed.send_raw(json.dumps(body).encode())
    sealed.drain()
    assert sealed.final("all").status == "APPLIED"
    sealed.refresh("m", REBUILD)
    check_model(sealed)
    check_row_files(sealed)
    found = verify(sealed.store, "m")
    assert found.distance <= (found.bound or 0.0) + found.residual
    assert [one for one in check(sealed.store, None, "m") if not one.ok] == []
    check_row_keys(sealed)
    paths = [path for path in url.rglob("*") if path.is_file()]
    assert len(paths) > 8
    assert all(path.read_bytes().startswith(ENCRYPTED) for path in paths)


def same(platform: Platform, exact: bool) -> None:
    """Check that both models publish the same, up to what two fits differ by."""
    ours, theirs = (platform.load(model) for model in ("m", "other"))
    if exact:
        assert np.array_equal(ours.published, theirs.published)
        return
    away = float(np.linalg.norm(ours.published - theirs.published))
    assert away <= 1e-9 * float(np.linalg.norm(theirs.published))


def test_old_copies_of_files_cannot_be_read_once_a_refresh_has_written_them_anew(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess], tmp_path: Path
) -> None:
    url, aside = tmp_path / "rows", tmp_path / "aside"
    sealed.register(
        "m", marked_data(), method="exact", budget=10.0, exact_sums=True, rows_url=str(url)
    )
    # Given a copy of all files, and of the store
    shutil.copytree(url, aside)
    before = sealed.load().meta
    assert rows_in(files_of(url)) == rows_in(memory_of(sealed.raw())) == set()
    assert rows_in(files_of(servers[0].data)) == set()
    for row in (PLAIN, FOLDED):
        sealed.delete("m", row)
    assert copied(sealed, aside, before) == set(MARKED)
    sealed.refresh("m", REBUILD)
    # Then the keys that are left open copies of those files alone that are live now
    assert not copied(sealed, aside, before) & {PLAIN, FOLDED}
    assert rows_in(files_of(aside)) == rows_in(files_of(url)) == set()
    assert rows_in(files_of(servers[0].data)) == set()
    check_row_files(sealed)
    check_row_keys(sealed)
    check_model(sealed)


def copied(platform: Platform, aside: Path, meta: Meta) -> set[int]:
    """Return the marked rows of which something is in those copies that keys still open."""
    assert meta.row_files is not None
    assert platform.store.row_keys is not None
    [folder] = aside.rglob(meta.row_files.folder)
    files = SealedFiles(
        files_at(str(folder)), platform.store.row_keys, ModelKeys("m"), meta.row_files.folder
    )
    found: list[bytes] = []
    for name in files.names():
        with suppress(RowsMissing):
            found.append(files.get(name) or b"")
    return rows_in(found)


@pytest.mark.parametrize("refreshed", [False, True])
def test_copies_of_sampled_rows_are_encrypted_and_go_with_their_row(
    sealed: Platform, refreshed: bool
) -> None:
    sealed.register("m", "benign", "logistic", rows_url=sealed.folder())
    if refreshed:
        sealed.refresh("m", REBUILD)
    state = sealed.load()
    copies = sealed.raw().hget(state.generation_keys.fixed, "sentinel_rows") or b""
    every = np.asarray(sealed.data["m"].X)
    assert copies
    assert not any(row.tobytes() in copies for row in every)
    assert "row-3" in state.sentinels.ids
    assert any(np.array_equal(row[: every.shape[1]], every[3]) for row in state.sentinels.rows.X)
    sealed.delete("m", 3)
    state = sealed.load()
    assert "row-3" not in state.sentinels.ids
    assert sealed.store.row_keys is not None
    sealed.store.row_keys.drop(state.generation_keys, ["row-3"])  # it is gone already
    check_row_keys(sealed)


@pytest.mark.parametrize("restored", [True, False], ids=["is back", "is lost"])
def test_a_file_without_key_halts_the_model_until_the_key(sealed: Platform, restored: bool) -> None:
    sealed.register("m", exact_sums=True, rows_url=(url := sealed.folder()))
    files = sealed.load().meta.row_files
    assert files is not None
    assert sealed.store.row_keys is not None
    raw: Any = sealed.store.row_keys._client
    where = ModelKeys("m").file_keys(files.folder)
    kept = raw.dump(where)
    raw.delete(where)
    halting = sealed.deletion_worker()
    request = sealed.send_index("m", 60)
    for _ in range(3):
        halting.run_once(0.0)
    assert "m" in halting._halts
    assert request not in sealed.finals()
    with pytest.raises(RowsMissing, match="has no key in LETHE_ROW_KEYS_URL"):
        sealed.new_store().row_files.of(sealed.load().meta)
    halting.close()
    if restored:
        raw.restore(where, 0, kept)
    else:
        with pytest.raises(RowsMissing, match="--replace --accept-forgotten"):
            sealed.register("m", exact_sums=True, rows_url=url, replace_model=True)
        sealed.register(
            "m", exact_sums=True, rows_url=url, replace_model=True, accept_forgotten=True
        )
    sealed.drain()
    assert sealed.final(request).status == "APPLIED"
    check_model(sealed)
    check_row_files(sealed)
    check_row_keys(sealed)


def test_whoever_has_no_keys_is_told_where_they_are(sealed: Platform) -> None:
    sealed.register("m", exact_sums=True, rows_url=sealed.folder())
    store = store_at(sealed.url)
    with pytest.raises(CorruptState, match="are encrypted; name the store of their keys"):
        store.row_files.of(store.load_model("m").meta)
    with pytest.raises(CorruptState, match="LETHE_ROW_KEYS_URL"):
        live_members(store.client, "m", ["row-1"])
    assert live_members(store.client, "m", ["row-1"], sealed.store.row_keys) == {"row-1"}
    store.close()


def test_no_other_process_reads_encrypted_files(sealed: Platform) -> None:
    """Given workers for passes, which have no keys."""

    class Nobody:
        def map(self, *_: object) -> Iterator[Any]:
            raise AssertionError("asked for a pass")

    sealed.register("m", exact_sums=True, rows_url=sealed.folder())
    sealed.store.row_files = RowFilesOfModels(Nobody(), sealed.store.row_keys)
    assert verify(sealed.store, "m").distance < 1e-9
    sealed.store.row_files = RowFilesOfModels(Nobody())
    with pytest.raises(CorruptState, match="LETHE_ROW_KEYS_URL"):
        verify(sealed.store, "m")


def test_files_wait_for_a_store_of_keys_that_is_away(
    sealed: Platform, servers: tuple[ValkeyProcess, ValkeyProcess]
) -> None:
    sealed.register("m", exact_sums=True, rows_url=sealed.folder())
    servers[1].kill()
    request = sealed.send_index("m", 2)
    with pytest.raises(StoreUnavailable, match=r"store of row keys at .*LETHE_ROW_KEYS_URL"):
        sealed.pair[0].run_once(0.0)
    with pytest.raises(StoreUnavailable, match="store of row keys"):
        sealed.register("other", exact_sums=True, rows_url=sealed.folder())
    servers[1].start()
    sealed.pair[0].recover()
    assert sealed.answer(request).status == "APPLIED"
    sealed.store.close()
    sealed.store = sealed.new_store()
    check_model(sealed)


def test_files_from_before_they_were_encrypted_are_read_and_written_encrypted(
    sealed: Platform,
) -> None:
    """Given rows that were registered, and inserted, while no keys were named."""
    url = Path(sealed.folder())
    keys, sealed.keys_url = sealed.keys_url, ""
    sealed.reconnect()
    sealed.register("m", exact_sums=True, rows_url=str(url))
    table = Table(sealed)
    table.change("insert", table.row("new"))
    sealed.drain()
    sealed.keys_url = keys
    sealed.reconnect()
    for worker in sealed.pair:
        worker.close()
    sealed._pair = None
    table.delete("row-4", "new")
    sealed.drain()
    sealed.refresh("m", REBUILD)
    found = [path.read_bytes() for path in url.rglob("*") if path.is_file()]
    assert 0 < sum(data.startswith(ENCRYPTED) for data in found) < len(found)
    table.check()
    sealed.register("m", exact_sums=True, rows_url=str(url), replace_model=True)
    assert all(path.read_bytes().startswith(ENCRYPTED) for path in url.rglob("*") if path.is_file())
    check_row_files(sealed)
    check_row_keys(sealed)


@pytest.mark.parametrize("first", ["store", "files"])
def test_models_move_between_the_store_and_files_and_leave_no_key(
    sealed: Platform, first: str
) -> None:
    url = Path(sealed.folder())
    places = {"store": None, "files": str(url)}
    for place in (first, "files", "store", "files"):
        sealed.register("m", exact_sums=True, rows_url=places[place], replace_model=True)
        sealed.delete("m", 3)
        check_model(sealed)
        check_row_files(sealed)
        check_row_keys(sealed)
        sealed.refresh("m", REBUILD)
    sealed.registrar().unregister("m")
    assert [path for path in url.rglob("*") if path.is_file()] == []
    assert sealed.store.row_keys is not None
    raw: Any = sealed.store.row_keys._client
    assert [*raw.scan_iter(match="*:file-keys:*")] == []


def test_a_registration_that_fails_leaves_no_key(sealed: Platform) -> None:
    url, failed = sealed.folder(), list[bytes]()
    assert sealed.store.row_keys is not None
    raw: Any = sealed.store.row_keys._client

    def fail(_: str) -> None:
        failed.extend(raw.scan_iter(match="*:file-keys:*"))
        if failed:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sealed.register("m", exact_sums=True, rows_url=url, at_step=fail)
    assert failed
    assert [path for path in Path(url).rglob("*") if path.is_file()] == []
    assert [*raw.scan_iter(match="*:file-keys:*")] == []


def test_what_a_killed_registration_leaves_is_swept_with_its_keys(sealed: Platform) -> None:
    url, keys = sealed.folder(), ModelKeys("m")
    sealed.register("m", exact_sums=True, rows_url=url)
    assert sealed.store.row_keys is not None
    staging.note_registration(sealed.store.client, keys, "dead", 0, url)
    files_of_registration(sealed, url, "dead").put("0" * 64, b"rows")
    swept = staging.sweep_registrations(
        sealed.store.client, keys, sealed.store.row_keys, seconds=-1
    )
    assert swept == 1
    check_row_files(sealed)
    check_row_keys(sealed)


def files_of_registration(platform: Platform, url: str, folder: str) -> SealedFiles:
    """Return the files of a registration of ``m``, as another process opens them."""
    assert platform.store.row_keys is not None
    place = files_at(url, "m", folder)
    return SealedFiles(place, platform.store.row_keys, ModelKeys("m"), folder)


def test_keys_that_were_lost_while_files_were_written_are_there_when_the_root_is_known(
    sealed: Platform,
) -> None:
    """Given a store of keys that was killed before it had them on its disk."""
    data, url = make("benign", "linear"), sealed.folder()
    files = files_of_registration(sealed, url, "new")
    assert sealed.store.row_keys is not None
    raw: Any = sealed.store.row_keys._client
    with BucketWriter(files, data.X.shape[1], data.y.shape[1], subjects=False) as writing:
        writing.add([f"row-{i}" for i in range(len(data.X))], Rows(data.X, data.y, data.weight))
        root = writing.finish(lambda _: raw.delete(ModelKeys("m").file_keys("new")))
    buckets = Buckets(files_of_registration(sealed, url, "new"), root, "model 'm'")
    assert sum(map(len, buckets.scan())) == len(data.X)


def test_processes_that_write_the_same_file_write_it_under_one_key(sealed: Platform) -> None:
    url, name = sealed.folder(), digest_of(b"rows")
    one, other = (files_of_registration(sealed, url, "new") for _ in range(2))
    one.put(name, b"rows")
    other.put(name, b"rows")
    one.settle()
    assert one.get(name) == other.get(name) == b"rows"
    other.settle()
    assert one.get(name) == b"rows"
    # Given keys that were lost, and made anew by another process, whose file this is then
    assert sealed.store.row_keys is not None
    raw: Any = sealed.store.row_keys._client
    one.put(name, b"rows")
    raw.delete(ModelKeys("m").file_keys("new"))
    other.put(name, b"rows")
    with pytest.raises(StoreUnavailable, match="try again"):
        one.settle()
    other.settle()
    assert one.get(name) == b"rows"


def test_a_file_in_place_of_another_is_not_read(sealed: Platform) -> None:
    sealed.register("m", exact_sums=True, rows_url=(url := sealed.folder()))
    files = sealed.store.row_files.of(sealed.load().meta)
    assert files is not None
    (first,), (second,) = (Path(url).rglob(part.digest) for part in files.manifest.buckets[:2])
    first.write_bytes(second.read_bytes())
    with pytest.raises(CorruptState, match="has another content than its name says"):
        list(sealed.new_store().row_files.every(sealed.load().meta))


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_raw_rows_of_models_with_preprocessing_are_encrypted(sealed: Platform, kind: Kind) -> None:
    url = Path(sealed.folder())
    table = PreparedTable(
        sealed, EVERY_KIND, 300, kind=kind, ridge=10.0, model_id="m", rows_url=str(url)
    )
    table.register(budget=2.0)
    table.delete(1, 2, 7)
    sealed.drain()
    sealed.refresh("m", REBUILD)
    table.delete(3)
    sealed.drain()
    found = verify(sealed.store, "m")
    assert found.bound is None or found.distance <= found.bound + found.residual
    assert all(path.read_bytes().startswith(ENCRYPTED) for path in url.rglob("*") if path.is_file())
    check_row_files(sealed)
    check_row_keys(sealed)
