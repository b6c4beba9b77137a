"""Defects that the simulation found, each as the shortest sequence of events that shows it.

Most need a store that goes back at one moment: between a fold and the state that is read after it,
between two commits that a fold brings together, while a worker holds a model in memory.
"""

from __future__ import annotations

import pytest

from lethe.consumers.commits.publish import newest_parameters
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.apply import Applied, Place, StoreChange
from tests.support.events import settle
from tests.support.invariants import check_model
from tests.support.platform import Platform, row_ids
from tests.support.stores import backup, neighbour_of, restore, wipe


def test_a_model_in_memory_is_folded_from_what_the_store_holds(memory: Platform) -> None:
    """Given a state in memory, when a neighbour finds the store gone back, it is erased again."""
    other = neighbour_of("m")
    memory.register("m")
    memory.register(other)
    before = backup(memory)
    memory.delete("m", 0, 1, 2)
    restore(memory, before)
    memory.delete(other, 3)
    memory.delete("m", 4)
    check_model(memory)
    check_model(memory, other)


def test_nothing_is_decided_on_a_state_of_before_the_fold(memory: Platform) -> None:
    """Given a folded partition, when the store goes back before the model is read, it is folded."""
    memory.register("m")
    before = backup(memory)
    memory.delete("m", 0, 1)
    memory.pair[0].recover()
    memory.turn(memory.pair[0])  # folds, and keeps no state of the model
    restore(memory, before)
    memory.delete("m", 2, 3)
    check_model(memory)


def test_a_model_that_the_store_has_lost_is_not_unknown(memory: Platform) -> None:
    """Given a folded partition, when the store is wiped, then requests wait, and are not refused.

    A worker that had read the log to its end took the empty store's word for it.
    """
    memory.drain()
    memory.register("m")
    memory.drain()
    memory.pair[0].recover()
    memory.turn(memory.pair[0])
    wipe(memory)
    request = memory.delete("m", 0)
    assert memory.statuses(request) == ["DEFERRED"]
    memory.register("m", replace_model=True)
    assert memory.answer(request).status == "APPLIED"
    check_model(memory)


@pytest.mark.parametrize("replace_model", [False, True])
def test_a_registration_that_won_beside_a_neighbours_commit_knows_it(
    memory: Platform, replace_model: bool
) -> None:
    """Given another model's commit just before its own, then it neither fails nor repeats itself.

    It discarded its own rows, which were live.
    """
    other = neighbour_of("m")
    memory.register(other)
    if replace_model:
        memory.register("m")
    sent: list[str] = []

    def at_step(step: str) -> None:
        if step == Step.REGISTER_APPEND and not sent:
            sent.append(memory.send_index(other, 0))
            memory.drain()

    memory.register("m", replace_model=replace_model, at_step=at_step)
    assert sent
    memory.delete("m", 1)
    assert len(memory.versions()) == 2 + replace_model
    check_model(memory)


def test_a_registration_and_its_opening_are_folded_together(memory: Platform) -> None:
    """Given a wiped store, when a model's first commits are folded, then it is not halted."""
    memory.register("m")
    rows = backup(memory)
    memory.delete("m", 0, 1)
    heads = {name: kept for name, kept in rows.items() if b":gen:" in name or b":data:" in name}
    restore(memory, heads)  # all but the rows is lost
    settle(memory)
    memory.delete("m", 2)
    assert not len(memory.pair[0]._halts)
    check_model(memory)


def test_a_request_by_subject_waits_while_rows_are_missing(memory: Platform) -> None:
    """Given lost rows, then who asks for a subject is not told that there are none."""
    memory.register("m")
    whole = backup(memory)
    wipe(memory)
    settle(memory)
    body = b'{"request_id": "%s", "model_id": "m", "subject_id": "%s"}'
    memory.send_raw(body % (b"known", b"subject-1"))
    memory.send_raw(body % (b"unknown", b"nobody"))
    stranger = memory.send("m", "stranger", row_ids(memory.data["m"])[0])
    memory.drain()
    for name in ("known", "unknown", stranger):
        assert memory.statuses(name) == ["DEFERRED"]
    restore(memory, whole)
    settle(memory)
    memory.refresh("m", RefreshSize.REBUILD)
    assert memory.final("known").rows_deleted == 3
    assert memory.final("unknown").code == "UNKNOWN_ROWS"
    assert memory.final(stranger).rows_deleted == 1
    assert memory.final(stranger).rows_unknown == 1
    memory.asked.clear()
    check_model(memory)


def test_what_a_lost_replacement_took_the_place_of_goes_with_it(memory: Platform) -> None:
    """Given a --replace whose rows are lost, then the rows before it do not stay for ever."""
    memory.register("m")
    former = memory.load().rows_generation
    before = backup(memory)
    memory.register("m", replace_model=True)
    restore(memory, before)
    settle(memory)
    keys = memory.load().keys.generation(former)
    assert not memory.raw().exists(*keys.everything())
    memory.register("m", replace_model=True)
    memory.drain()
    check_model(memory)


def test_parameters_of_an_unregistered_model_are_not_sent_again(memory: Platform) -> None:
    """Given a publisher that was overtaken, then no parameters go out that no version has."""
    memory.register("m")
    memory.delete("m", 0)
    [message] = newest_parameters(memory.store, ["m", "nobody"])
    assert message.value == memory.records(topics.MODELS)[-1].value
    memory.registrar().unregister("m")
    memory.drain()
    assert newest_parameters(memory.store, ["m"]) == []
    sent = [record.value or b"" for record in memory.records(topics.MODELS)]
    assert all(any(Parameters.model_validate_json(value).theta or ()) for value in sent)


def test_a_halted_model_is_noted_where_the_cursor_passes_it(memory: Platform) -> None:
    """Given a note that the store lost, when the cursor passes a halted model, it is made again."""
    memory.register("m")
    keys = memory.load().keys
    cursors = memory.store.cursors
    end = cursors.read(keys.partition).pair.apply
    cursors.move_apply(keys.partition, end, end + 5, halted=["m"])
    pair = cursors.read(keys.partition).of_model("m")
    assert (pair.apply, pair.published) == (end, end)


def test_what_the_head_had_is_not_applied_to_a_store_that_went_back(memory: Platform) -> None:
    """Given a commit that was applied, when the store is behind it, then its repetition is refused.

    It says nothing of V, Q and rows.
    """
    memory.register("m")
    before = backup(memory)
    memory.delete("m", 0)
    state = memory.load()
    head, keys = state.head, state.keys
    restore(memory, before)
    change = StoreChange(
        keys, head.commit, "", head.digest, Place(0), state.generation_keys, repeats=True
    )
    [answer], _ = memory.store.apply([change])
    assert answer.applied is Applied.BEHIND
    assert memory.load().head.commit == head.commit - 1
