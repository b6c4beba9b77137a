"""The mutants: which lines are changed, and what must notice it."""

from __future__ import annotations

from dataclasses import dataclass

SIMULATION = "simulation"
_LOST = "tests/integration/test_worker_lost_writes.py"
_TWICE = "tests/integration/test_worker_two_losses.py"
_LEFT = (
    "tests/integration/test_worker_commit.py"
    "::test_what_a_former_owner_left_is_finished_although_its_records_are_gone"
)
_COMMIT = "tests/unit/store/test_commit.py::test_a_refused_commit_writes_nothing"


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact piece of text in place of another; the first must be there once."""

    path: str
    old: str
    new: str = ""


@dataclass(frozen=True, slots=True)
class Mutant:
    """The product without one of its guards.

    Attributes
    ----------
    name
        What is missing.
    edits
        How it is taken out.
    caught_by
        `SIMULATION`, or the test that must fail: for guards that others stand before, so that no
        run of workers reaches them, or few do.
    """

    name: str
    edits: tuple[Edit, ...]
    caught_by: str = SIMULATION


_SCRIPT = "engine/store/commit.lua"
_STORE = "engine/store/store.py"
_HANDOVER = "engine/store/handover.py"
_WORKER = "consumers/deletion_worker.py"
_DECIDER = "consumers/decider.py"
_PUBLISHER = "consumers/publisher.py"
_TAKEOVER = "consumers/takeover.py"
_ADOPT = "consumers/adopt.py"
_AGAIN = "consumers/decide_again.py"

_COMPARE = (
    "if (held[1] or '0') ~= expected.commit_seq then return refuse('commit_seq', held[1]) end\n"
    "if (held[2] or '-1') ~= expected.version then return refuse('version', held[2]) end\n"
    "if (held[3] or '') ~= expected.digest then return refuse('digest', held[3]) end\n"
)
_COMPARE_OFFSET = (
    "  if offset ~= expected.next_offset then return refuse('next_offset', offset) end\n"
)
_WAIT = "            self._barrier.wait(self._writer)\n"

MUTANTS = (
    Mutant(
        "the compare-and-set",
        (Edit(_SCRIPT, _COMPARE), Edit(_SCRIPT, _COMPARE_OFFSET)),
        # The simulation catches it as well, but only one seed in some hundred gets that far: the
        # checks of the ledger, of receipts and of the lengths of V and Q stand behind it.
        _COMMIT,
    ),
    Mutant("the comparison of next_offset", (Edit(_SCRIPT, _COMPARE_OFFSET),), _COMMIT),
    Mutant(
        "the durable barrier",
        (
            Edit(_STORE, _WAIT),
            Edit(_STORE, "self._barrier.settle(self._writer)", "pass"),
        ),
    ),
    Mutant(
        "the barrier's connection: another one than the script's",
        (Edit(_STORE, _WAIT, _WAIT.replace("_writer", "_client")),),
        # The publisher's own barrier stands behind this one, so that no run of workers needs both.
        "tests/unit/store/test_commit.py::test_the_barrier_waits_on_the_connection_that_wrote",
    ),
    Mutant(
        "the barrier before another worker's commit is published",
        (Edit(_PUBLISHER, "            self._store.settle()\n"),),
    ),
    Mutant(
        "the tail read at takeover",
        (
            Edit(
                _TAKEOVER,
                "if is_behind(one, published, answered.get(one.model_id), reader):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "the ledger check of a decision",
        (Edit("consumers/decide.py", "elif row in self.lookup.ledger:", "elif row == '':"),),
    ),
    Mutant(
        "the ledger check of the script",
        (
            Edit(
                _SCRIPT,
                "if redis.call('HEXISTS', LEDGER, row) == 1 "
                "then return refuse('ledger', 'new') end",
            ),
        ),
        _COMMIT,
    ),
    Mutant(
        "the final-receipt check of a decision",
        (Edit("consumers/decide.py", "if stored is not None:", "if stored == '':"),),
    ),
    Mutant(
        "the final-receipt check of the script",
        (Edit(_SCRIPT, "if receipt and string.sub(receipt, 1, 1) == 'F' and", "if false and"),),
        _COMMIT,
    ),
    Mutant(
        "the order of erasing after the commit",
        (
            Edit(
                _STORE,
                "        names, arguments = commit.call()\n",
                "        for entry in commit.erase:\n"
                "            name, _, row = entry.partition('/')\n"
                "            shard = commit.keys.generation(name).rows(keys.shard_of(row))\n"
                "            self._client.hdel(shard, row)\n"
                "        names, arguments = commit.call()\n",
            ),
        ),
    ),
    Mutant(
        "the order of publication: versions first",
        (Edit(_PUBLISHER, "for stage in Stage:", "for stage in reversed(Stage):"),),
    ),
    Mutant(
        "trimming only what is acknowledged",
        (
            Edit(
                _PUBLISHER,
                "        everything = [entry for entries",
                "        for keys, sent in waiting.items():\n"
                "            self._outbox.trim(keys, [entry_id for entry_id, _ in sent])\n"
                "        everything = [entry for entries",
            ),
            Edit(_PUBLISHER, "waiting = self._still_there(waiting, stage)", "pass"),
        ),
    ),
    Mutant(
        "the look at the store before each stage is sent",
        (Edit(_PUBLISHER, "waiting = self._still_there(waiting, stage)", "pass"),),
    ),
    Mutant(
        "the watermark behind publication",
        (
            Edit(
                _WORKER,
                "        self._at_step(Step.PUBLISH)\n",
                "        self._advance(records, {group.partition for group in groups})\n"
                "        self._at_step(Step.PUBLISH)\n",
            ),
        ),
    ),
    Mutant(
        "the watermark below what a halted model has not decided",
        (Edit(_WORKER, "return min([self._positions[partition], *held])",
              "return self._positions[partition]"),),
    ),
    Mutant(
        "the watermark that never goes back",
        (Edit(_HANDOVER, "if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[1]) or '-1') then",
              "if true then"),),
        "tests/integration/test_log_retention.py::test_a_watermark_never_goes_back",
    ),
    Mutant(
        "next_offset: records are read again as if nobody had decided them",
        (
            Edit(
                _DECIDER,
                "return [item for item in items if item.record.offset >= first]",
                "return list(items)",
            ),
        ),
        "tests/integration/test_worker_commit.py::test_what_is_decided_is_not_decided_again",
    ),
    Mutant(
        "the comparison of digests at takeover",
        (Edit("consumers/branches.py", "if published.digest != stored.digest:", "if False:"),),
    ),
    Mutant(
        "the published receipts at adoption",
        (
            Edit(_ADOPT, "published = self.lost.published(receipt)", "published = None"),
            Edit(_ADOPT, "replace(origin, published=self.lost.same_decision)", "origin"),
            Edit(_AGAIN, "replace(batch.origin, published=lost.same_decision)", "batch.origin"),
        ),
    ),
    Mutant(
        "the published digest at adoption",
        (Edit(_ADOPT, "                digest=version.digest,\n"),),
    ),
    Mutant(
        "the answers of unregistered models that a failover lost",
        (
            Edit(
                _WORKER,
                "self._decider.know_answers(answers, beside=bool(others))",
                "self._decider.know_answers({}, beside=bool(others))",
            ),
        ),
        f"{_LOST}::test_lost_answers_of_an_unregistered_model_stand",
    ),
    Mutant(
        "the look for registrations that a failover lost",
        (Edit(_WORKER, "lost = lost_registrations(self._store, reader)", "lost = {}"),),
        f"{_LOST}::test_a_lost_registration_halts_until_it_is_registered_again",
    ),
    Mutant(
        "the takeover of models whose requests come to another partition",
        (Edit(_WORKER, "if model_id in self._settled:", "if True:"),),
        f"{_LOST}::test_a_worker_mends_a_model_whose_requests_normally_lie_elsewhere",
    ),
    Mutant(
        "the look behind the mark at takeover",
        (Edit("consumers/reach.py",
              "first = min([bounds.end - self.least, *known])",
              "first = bounds.end - self.least if known else bounds.begin"),),
    ),
    Mutant(
        "the note of a halt",
        (Edit(_TAKEOVER, "if known_halts:", "if False:"),),
        "tests/integration/test_worker_lost_writes.py"
        "::test_a_halt_is_not_forgotten_when_many_answers_of_others_follow",
    ),
    Mutant(
        "the receipt of a lost version, where its request must wait now",
        (Edit("consumers/lost_history.py", "waits = not receipt.final and", "waits = False and"),),
        "tests/integration/test_worker_lost_writes.py"
        "::test_a_receipt_whose_version_was_lost_stands_when_its_request_must_wait",
    ),
    Mutant(
        "the wait of a request that was told to wait, where it need not now",
        (Edit(_AGAIN, "d.request_id in told for", "False for"),),
        f"{_TWICE}::test_requests_that_a_lost_rebuild_answered_have_one_version_again",
    ),
    Mutant(
        "the number of a published version, which lost answers may not take",
        (Edit(_ADOPT, "                return state, False\n", "                pass\n"),),
        f"{_TWICE}::test_no_request_takes_the_number_of_a_published_rebuild",
    ),
    Mutant(
        "the order of what was answered and what is decided again",
        (Edit(_ADOPT, "receipts = self.lost.answers(state, until)",
              "receipts = () if until is not None else self.lost.answers(state)"),),
        f"{_TWICE}::test_the_log_of_receipts_has_their_order_although_a_rebuild_was_lost",
    ),
    Mutant(
        "the erasure that a former owner left",
        (Edit(_TAKEOVER, "if one.unerased or one.keys in adopted:", "if False:"),),
        _LEFT,
    ),
    Mutant(
        "the outbox that a former owner left",
        (Edit(_TAKEOVER, "if one.unpublished or one.keys in adopted", "if one.keys in adopted"),),
        _LEFT,
    ),
    Mutant(
        "the check that a refresh's result still fits",
        (Edit("consumers/refresh_transition.py",
              "if result.generation_key != state.meta.generation_key:", "if False:"),),
    ),
)  # fmt: skip
