"""The apply script and the fold of one model: what a record does to the store (3.2 step 7, 3.3)."""

from __future__ import annotations

from tests.proof.model.lifecycle_state import History, Record, Result, Row, Store, row_of


def script(history: History, store: Store, digest: int, expired: bool) -> Store:
    """Apply a record to a store that stands below it; the cursor is the caller's."""
    rules, record = history.rules, history[digest]
    before, after = history.meaning(record.prev), history.meaning(digest)
    index = store.decided
    if record.request is not None and record.kind != "defer":
        index |= {record.request}
    if record.kind in ("register", "unregister"):
        index |= {request for request, _ in after.outcomes}
    ledger = store.ledger | (after.ledger - before.ledger)
    store = store._replace(head=digest, decided=index, ledger=ledger)
    match record.kind:
        case "delete":
            store = _delete(store, record, before.live)
        case "insert" | "correct":
            store = _change(history, store, record, digest, expired)
        case "swap" if isinstance(record.request, Result):
            store = _swap(history, store, record, record.request, after.live)
        case "register":
            store = _register(history, store, record)
        case "unregister":
            staged = frozenset[Result]() if rules.registration_ends_job else store.staged
            gone = frozenset[Row]()
            store = store._replace(
                records=gone, arrays=gone, awaiting=False, lost=False, staged=staged
            )
    return store


def _register(history: History, store: Store, record: Record) -> Store:
    """Take a staged registration in; without it, the model's data are lost."""
    rows = frozenset(Row(row, record.incarnation, "b") for row in record.rows)
    staged = (record.incarnation, rows)
    if staged in store.registrations:
        left = store.registrations - {staged}
        return store._replace(
            records=rows, arrays=rows, awaiting=False, lost=False, registrations=left
        )
    kept = frozenset[Row]() if history.rules.keyed_by_incarnation else store.records
    return store._replace(records=kept, arrays=None, lost=True)


def _delete(store: Store, record: Record, live: frozenset[Row]) -> Store:
    """Take a row out of the arrays and erase its record."""
    row = row_of(record.request)
    old = next((each for each in live if each.id == row), None)
    if old is None:
        return store
    records = frozenset(each for each in store.records if each.id != row)
    if store.arrays is None or old not in store.records or old not in store.arrays:
        awaiting = store.awaiting or store.arrays is not None
        return store._replace(records=records, arrays=None, awaiting=awaiting)
    return store._replace(records=records, arrays=store.arrays - {old})


def _change(history: History, store: Store, record: Record, digest: int, expired: bool) -> Store:
    """Insert or correct a row, from the values that lie in `lethe.row-changes`."""
    row = row_of(record.request)
    new = next(each for each in history.meaning(digest).live if each.id == row)
    before = history.meaning(record.prev).live
    old = next((each for each in before if each.id == row), None)
    arrays, awaiting = store.arrays, store.awaiting
    if old is not None and arrays is not None:
        if old in store.records:
            arrays -= {old}
        else:
            arrays, awaiting = None, True
    records = store.records - ({old} if old is not None else set())
    if expired:
        return store._replace(records=records, arrays=None, awaiting=True)
    arrays = arrays | {new} if arrays is not None else None
    return store._replace(records=records | {new}, arrays=arrays, awaiting=awaiting)


def _swap(
    history: History, store: Store, record: Record, result: Result, live: frozenset[Row]
) -> Store:
    """Swap a staged generation in, caught up with what was decided since its snapshot."""
    rules = history.rules
    if result not in store.staged:
        return store._replace(arrays=None, awaiting=True)
    came, went = live - result.rows, result.rows - live
    staged = store.staged - {result}
    if not rules.changes_caught_up:
        came, went = frozenset[Row](), went - {row for row in went if row.id in _ids(live)}
    reachable = came <= store.records and (rules.own_features or went <= store.records)
    if not reachable:
        return store._replace(arrays=None, awaiting=True, staged=staged)
    arrays = (result.rows - went) | came
    if not rules.result_of_registration:
        chain = history.chain(record.prev)
        named = {row_of(history[d].request) for d in chain if history[d].kind == "delete"}
        arrays = frozenset(each for each in result.rows if each.id not in named)
        arrays |= {each for each in came if each.value.startswith("v")}
    return store._replace(arrays=arrays, awaiting=False, staged=staged)


def _ids(rows: frozenset[Row]) -> set[int]:
    return {row.id for row in rows}


def fold_one(history: History, log: tuple[int, ...], store: Store, expired: bool) -> Store | None:
    """Run the script of the record at the cursor; None: the end is reached."""
    if store.cursor >= len(log):
        return None
    digest = log[store.cursor]
    valid = history.accepted(log)[1][store.cursor]
    on = store._replace(cursor=store.cursor + 1)
    if valid and history[digest].commit > history[store.head].commit:
        return script(history, on, digest, expired)
    if valid and history.rules.passed_over_added:
        meaning = history.meaning(digest)
        requests = {request for request, _ in meaning.outcomes}
        return on._replace(ledger=on.ledger | meaning.ledger, decided=on.decided | requests)
    return on


def swept(history: History, log: tuple[int, ...], store: Store) -> Store:
    """At the end of a fold: a live member without a record is DATA_LOST."""
    if store.cursor < len(log):
        return store
    live = history.meaning(store.head).live
    missing = not live <= store.records
    if not history.rules.keyed_by_incarnation:
        missing = not {row.id for row in live} <= {row.id for row in store.records}
    if missing and not store.lost:
        return store._replace(arrays=None, awaiting=True, lost=True)
    if not missing and store.lost and history.rules.lost_derived:
        awaiting = history.meaning(store.head).registered
        return store._replace(arrays=None, awaiting=awaiting, lost=False)
    return store


def fold(history: History, log: tuple[int, ...], store: Store, expired: bool) -> Store:
    """Fold a store to the end of the log."""
    while (after := fold_one(history, log, store, expired)) is not None:
        store = after
    return swept(history, log, store)
