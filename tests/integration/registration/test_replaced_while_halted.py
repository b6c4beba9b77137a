"""A model is replaced while the store cannot follow its log; then an older backup is restored."""

from __future__ import annotations

import pytest

from tests.support.agreement import check_agreement
from tests.support.invariants import ledger_of
from tests.support.platform import Platform
from tests.support.stores import backup, restore
from tests.support.tables import Table

pytestmark = pytest.mark.redis


def test_a_backup_from_before_follows_the_log_over_the_replacement(memory: Platform) -> None:
    memory.register("m")
    before = backup(memory)
    memory.send_index("m", 0)
    memory.drain()
    memory.pair[0].recover()
    restore(memory, before)
    memory.raw().set(memory.load().generation_keys.V, "damaged")
    replaced = memory.register("m", replace_model=True)
    assert replaced.in_ledger == 1
    after = backup(memory)
    restore(memory, before)
    memory.pair[0].recover()
    memory.send_index("m", 1)
    memory.drain()
    assert memory.statuses("request-2")[0] == "DEFERRED"
    restore(memory, after)
    memory.pair[0].recover()
    memory.send_index("m", 2)
    memory.drain()
    assert memory.final("request-3").status == "APPLIED"
    check_agreement(memory)


def test_a_row_that_only_the_log_had_inserted_was_a_member_once(memory: Platform) -> None:
    memory.register("m")
    before = backup(memory)
    memory.send_change("m", "insert", Table(memory).row("new-1"))
    memory.drain()
    memory.pair[0].recover()
    restore(memory, before)
    memory.raw().set(memory.load().generation_keys.V, "damaged")
    memory.register("m", replace_model=True)
    request = memory.send("m", "new-1")
    memory.drain()
    assert memory.final(request).status == "ALREADY_APPLIED"
    assert ledger_of(memory).keys() == {"new-1"}
