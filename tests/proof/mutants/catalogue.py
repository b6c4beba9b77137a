"""The mutants: which lines are changed, and what must notice it."""

from __future__ import annotations

from dataclasses import dataclass

SIMULATION = "simulation"
_GUARDS = "tests/integration/commits/test_guards.py"
_FOLD = "tests/integration/commits/test_fold.py"
_CHANGES = "tests/integration/deletions/test_row_changes.py"
_CHANGED_ROWS = "tests/unit/commits/test_changed_rows.py"
_OUTPUT_NOISE = "tests/integration/deletions/test_output_noise.py"
_DISCLOSURE = "tests/integration/deletions/test_disclosure.py"
_LOST_TOPICS = "tests/integration/log/test_lost_topics.py"
_LOST_KEYS = "tests/integration/commits/test_lost_keys.py"
_OUT_OF_RANGE = "tests/integration/deletions/test_out_of_range.py"
_OVER_BUDGET = "tests/integration/refresh/test_over_budget.py"
_INTAKE = "tests/integration/cdc/test_intake.py"
_TRANSLATE = "tests/unit/cdc/test_translate.py"
_TWO_ERASERS = "tests/integration/erasures/test_two_workers.py"
_PREPROCESSING = "tests/unit/engine/store/test_preprocessing.py"
_BOUNDS = "tests/proof/properties/test_bounds.py"
_REMAINDER = "tests/unit/engine/preprocess/test_remainder.py"
_PIPELINES = "tests/integration/preprocess/test_deletions.py"
_ROUNDING = "engine/exact/rounding.py"
_RUNNING = "engine/exact/running.py"
_TEST_ROUNDING = "tests/unit/engine/exact/test_rounding.py"
_TEST_RUNNING = "tests/unit/engine/exact/test_running.py"
_STORED_SUMS = "engine/store/layout/exact_sums.py"
_TEST_STORED_SUMS = "tests/unit/engine/store/test_exact_sums.py"
_TEST_SUMS_OF_MODELS = "tests/integration/commits/test_exact_sums.py"
_TEST_ROUNDED = "tests/unit/engine/preprocess/test_rounded.py"
_SCRIPT_TEST = f"{_GUARDS}::test_the_script_compares_before_it_writes"


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


_SCRIPT = "engine/store/apply.lua"
_CURSORS = "engine/store/cursors.py"
_WORKER = "consumers/workers/deletion_worker.py"
_LOAD = "consumers/deletions/load.py"
_DECIDE = "consumers/deletions/decide.py"
_ROW_CHANGES = "consumers/deletions/row_changes.py"
_JOURNAL = "consumers/commits/journal.py"
_FOLDER = "consumers/commits/recovery/fold.py"
_PARTITION_FOLD = "consumers/commits/recovery/partition_fold.py"
_FOLLOWER = "consumers/commits/recovery/follower.py"
_NEWEST = "consumers/commits/newest.py"
_COMMITTER = "consumers/registration/committer.py"
_PUBLISHER = "consumers/commits/publisher.py"
_ERASURE_WORKER = "consumers/workers/erasure_worker.py"

MUTANTS = (
    # -- keys that the store has lost
    Mutant(
        "the comparison of a look-up with what the head counts",
        (Edit("engine/store/lookup.py", "whole=not lost,", "whole=True,"),),
        f"{_LOST_KEYS}::test_a_lost_ledger_comes_back_from_commits_before_anything_is_decided",
    ),
    Mutant(
        "what the script counts stays while a key lacks entries",
        (Edit(_SCRIPT, "  if not whole then", "  if false then"),),
        f"{_LOST_KEYS}::test_what_the_log_no_longer_has_halts_the_model_until_a_person_accepts_it",
    ),
    Mutant(
        "a fold of a model that lost keys begins where the log begins",
        (Edit(_FOLDER, "            self._restore_keys(keys, partition)\n", ""),),
        f"{_LOST_KEYS}::test_a_lost_index_comes_back_and_no_id_is_applied_twice",
    ),
    Mutant(
        "a replacement of a model that lost keys is accepted aloud",
        (
            Edit(
                "consumers/registration/register.py",
                "if isinstance(halt, KeysLost) and not accept:",
                "if False:",
            ),
        ),
        f"{_LOST_KEYS}::test_what_the_log_no_longer_has_halts_the_model_until_a_person_accepts_it",
    ),
    # -- rows out of range
    Mutant(
        "the least error of a version with new rows",
        (
            Edit(
                _ROW_CHANGES,
                "    check_least(state, changed, factor, least)\n",
                "",
            ),
        ),
        f"{_OUT_OF_RANGE}::test_a_row_with_which_no_version_keeps_the_budget_is_rejected_and_changes_"
        "nothing",
    ),
    Mutant(
        "the deletion of a long row ends the pause after failed refreshes",
        (Edit("consumers/deletions/transition.py", "    if batch.ends_pause:", "    if False:"),),
        f"{_OUT_OF_RANGE}::test_the_deletion_of_a_row_that_was_taken_is_not_held_up_by_it",
    ),
    # -- appending: the log is the compare-and-set
    Mutant(
        "the gap read: the journal believes every acknowledgement",
        (
            Edit(
                _JOURNAL,
                "if not (same_leader and same_topic and set(offsets) == set(expected)):",
                "if not offsets:",
            ),
        ),
        f"{_GUARDS}::test_who_comes_second_reads_the_gap",
    ),
    Mutant(
        "the epoch of an acknowledgement",
        (Edit(_JOURNAL, "if not (same_leader and same_topic and", "if not (same_topic and"),),
        f"{_GUARDS}::test_an_append_under_another_leader_is_read_again",
    ),
    Mutant(
        "the digest of the record below the tail",
        (
            Edit(
                "consumers/log/kept.py",
                "if not any(record.offset == offset and known_by(record) == kept.digest for",
                "if not any(record.offset == offset for",
            ),
        ),
        f"{_GUARDS}::test_another_record_at_the_tail_is_a_log_that_was_reset",
    ),
    Mutant(
        "a fold takes up the models of its own partition alone",
        (
            Edit(
                "consumers/commits/recovery/counted.py",
                "if framed is not None and commit_partition(framed.open.model_id) == "
                "partition.index:",
                "if framed is not None:",
            ),
        ),
        "tests/integration/commits/test_records.py::test_a_void_record_is_skipped",
    ),
    Mutant(
        "an erasure waits for halted models of its own namespace alone",
        (
            Edit(
                "consumers/erasures/unsearched.py",
                "models.damaged | (late & concerned[erasure.request.namespace])",
                "models.damaged | late",
            ),
        ),
        "tests/integration/erasures/test_halted.py"
        "::test_an_erasure_in_another_namespace_is_complete",
    ),
    Mutant(
        "the prev check of a record",
        (Edit(_JOURNAL, "if follows and part.prev == head.digest else", "if follows else"),),
        f"{_GUARDS}::test_a_commit_of_another_predecessor_does_not_count",
    ),
    Mutant(
        "the number check of a record",
        (Edit(_JOURNAL, "or part.number <= head.commit:", "or part.number < 0:"),),
        f"{_GUARDS}::test_a_commit_of_another_predecessor_does_not_count",
    ),
    Mutant(
        "the partition check of a record",
        (
            Edit(
                _JOURNAL,
                "if commit_partition(part.model_id) != index or part",
                "if part",
            ),
        ),
        f"{_GUARDS}::test_a_commit_of_another_predecessor_does_not_count",
    ),
    Mutant(
        "the random wait of a winner",
        (Edit(_JOURNAL, "            self._contested.add(model_id)\n", "            pass\n"),),
        f"{_GUARDS}::test_the_winner_who_saw_a_void_record_waits_before_its_next_append",
    ),
    Mutant(
        "the halt on a wrong key",
        (
            Edit(
                "consumers/commits/recovery/opener.py",
                "            if self._superseded(record, valid):\n"
                "                return None\n"
                "            raise\n",
                "            return None\n",
            ),
        ),
        f"{_GUARDS}::test_a_halted_model_keeps_cursors_of_its_own_while_its_neighbour_goes_on",
    ),
    Mutant(
        "the id of the topic that cursors are of",
        (Edit(_FOLDER, "if cursors.topic_id != partition.topic_id:", "if False:"),),
        f"{_GUARDS}::test_a_commits_topic_that_was_made_again_is_a_log_that_was_reset",
    ),
    Mutant(
        "the key that opened the head, before anything is appended with another",
        (
            Edit(
                _LOAD,
                "                self._seals.check(group.model_id, state.seal)\n",
                "                pass\n",
            ),
        ),
        f"{_GUARDS}::test_nobody_appends_who_could_not_open_the_head",
    ),
    # -- applying
    Mutant(
        "the comparison with what a commit continues",
        (
            Edit(
                _SCRIPT,
                "  if at < manifest.commit - 1 then return {'BEHIND', tostring(at)} end\n"
                "  if (held[2] or '') ~= manifest.prev then return {'FORK', held[2] or ''} end\n",
            ),
        ),
        _SCRIPT_TEST,
    ),
    Mutant(
        "the digest of a commit that the head has already",
        (
            Edit(
                _SCRIPT,
                "  if at == manifest.commit and held[2] ~= manifest.digest then "
                "return {'FORK', held[2]} end\n",
            ),
        ),
        _SCRIPT_TEST,
    ),
    Mutant(
        "the removal of what versions disclose of erased people",
        (Edit(_SCRIPT, "in_chunks('HDEL', DISCLOSED, manifest.undisclosed)\n"),),
        f"{_DISCLOSURE}::test_nothing_is_kept_of_a_person_who_is_erased",
    ),
    Mutant(
        "the entries that a row has already",
        (
            Edit(
                _SCRIPT,
                "disclosed[i], entries .. disclosed[i + 1])",
                "disclosed[i], disclosed[i + 1])",
            ),
        ),
        f"{_DISCLOSURE}::test_changed_rows_add_up",
    ),
    Mutant(
        "the id of the arrays",
        (Edit(_SCRIPT, "if manifest.arrays and (held[3]", "if false and (held[3]"),),
        _SCRIPT_TEST,
    ),
    Mutant(
        "the generation whose rows are erased",
        (Edit(_SCRIPT, "if manifest.rows and (held[4]", "if false and (held[4]"),),
        _SCRIPT_TEST,
    ),
    Mutant(
        "the ledger check of the apply script",
        (
            Edit(
                _SCRIPT,
                "if redis.call('HEXISTS', LEDGER, row) == 1 then "
                "return {'CORRUPT', 'a row in the ledger'} end",
            ),
        ),
        _SCRIPT_TEST,
    ),
    Mutant(
        "the cursor's condition: only from behind the record before",
        (Edit(_SCRIPT, "if low <= cursor and cursor <= offset then", "if cursor <= offset then"),),
        f"{_GUARDS}::test_the_cursor_passes_a_record_only_from_behind_the_one_before",
    ),
    Mutant(
        "a final receipt that never changes",
        (
            Edit(
                _SCRIPT,
                "if not kept or (waits and string.sub(receipt, 1, 1) == 'F') then",
                "if true then",
            ),
        ),
        f"{_GUARDS}::test_a_final_receipt_in_the_index_never_changes",
    ),
    Mutant(
        "the look whether what becomes live is there",
        (
            Edit(
                _SCRIPT, "if redis.call('EXISTS', KEYS[i]) == 0 then return {'STAGED', KEYS[i]} end"
            ),
        ),
        _SCRIPT_TEST,
    ),
    # -- folding
    Mutant(
        "publishing what a fold reads",
        (
            Edit(
                _PARTITION_FOLD,
                "        self._producer.publish(messages_of([one.commit for one in to_send]))\n",
            ),
        ),
        f"{_FOLD}::test_what_a_dead_worker_appended_is_finished_although_the_requests_are_gone",
    ),
    Mutant(
        "the refold of records that heads have already",
        (
            Edit(
                _PARTITION_FOLD,
                "            if sealed.place.offset >= behind.apply:\n",
                "            known = heads.get(sealed.commit.model_id, Head()).commit\n"
                "            if sealed.place.offset >= behind.apply and "
                "sealed.commit.number > known:\n",
            ),
        ),
        f"{_GUARDS}::test_what_heads_have_is_folded_again",
    ),
    Mutant(
        "cursors of its own for a model that halts",
        (
            Edit(
                _PARTITION_FOLD,
                "            self._store.cursors.note_behind(self._keys, model_id)\n",
            ),
            Edit(
                "engine/store/cursors.lua",
                "    redis.call('HSETNX', CURSORS, 'behind:' .. ARGV[i], "
                "text({apply, published}))\n  end\n  redis.call('HSET', CURSORS, which,",
                "  end\n  redis.call('HSET', CURSORS, which,",
            ),
        ),
        f"{_GUARDS}::test_a_halted_model_keeps_cursors_of_its_own_while_its_neighbour_goes_on",
    ),
    Mutant(
        "what counts before a gap",
        (
            Edit(
                _PARTITION_FOLD,
                "                self._gaps[model] = error\n",
                "                self._halted[model] = error\n",
            ),
        ),
        "tests/integration/registration/test_recover.py"
        "::test_a_store_that_went_back_is_brought_up_to_a_gap",
    ),
    Mutant(
        "the keys of rows that a dead worker erased",
        (
            Edit(_PARTITION_FOLD, "        self._shred(sealed.commit, change.live.name)\n"),
            Edit(
                _PARTITION_FOLD, '            self._shred(one.commit, "")\n', "            pass\n"
            ),
        ),
        f"{_GUARDS}::test_a_fold_drops_the_keys_that_a_dead_worker_did_not",
    ),
    Mutant(
        "the look of an idle worker at its store",
        (Edit(_FOLLOWER, "if cursors.pair.apply < tail.offset:", "if False:"),),
        f"{_FOLD}::test_a_worker_that_is_idle_notices_that_its_store_went_back",
    ),
    # -- deciding
    Mutant(
        "the opening: requests from before the registration are the model's",
        (
            Edit(
                _LOAD,
                "return state.opening.get(str(group.partition), 0)",
                "return 0",
            ),
        ),
        f"{_GUARDS}::test_a_request_from_before_the_opening_is_of_no_model",
    ),
    Mutant(
        "reading on before a model is said to be unknown",
        (Edit(_LOAD, "                self._follower.read_on(group.model_id)\n"),),
        f"{_GUARDS}::test_a_model_is_unknown_only_by_an_end_asked_for_after_the_poll",
    ),
    Mutant(
        "the head that was looked up beside what a batch names",
        (Edit(_LOAD, "if lost or not lookup.is_of(one.state):", "if lost:"),),
        f"{_GUARDS}::test_nothing_is_decided_on_what_another_state_says",
    ),
    Mutant(
        "next offsets: records are read again as if nobody had decided them",
        (
            Edit(
                _LOAD,
                "if i.record.offset >= max(opening, decided)]",
                "if i.record.offset >= opening]",
            ),
        ),
        f"{_GUARDS}::test_what_is_decided_is_not_decided_again",
    ),
    Mutant(
        "the ledger check of a decision",
        (
            Edit(
                _DECIDE,
                "elif row in self.lookup.ledger:",
                "elif row == '':",
            ),
        ),
        f"{_GUARDS}::test_a_row_is_deleted_once_and_a_request_answered_once",
    ),
    Mutant(
        "the final-receipt check of a decision",
        (Edit(_DECIDE, "if stored is not None:", "if stored == '':"),),
        f"{_GUARDS}::test_a_row_is_deleted_once_and_a_request_answered_once",
    ),
    # -- publishing
    Mutant(
        "the watermark behind publication",
        (Edit(_PUBLISHER, "        flush.wait(_SECONDS)\n"),),
        f"{_GUARDS}::test_no_watermark_passes_what_is_not_acknowledged",
    ),
    Mutant(
        "the store before its readers",
        (
            Edit(_WORKER, "            self._commits.apply(won)  # 7\n"),
            Edit(
                _WORKER,
                "        # 9 follows in the next turn",
                "        self._commits.apply(won)\n        # 9 follows in the next turn",
            ),
        ),
        f"{_GUARDS}::test_readers_are_told_what_the_store_has",
    ),
    Mutant(
        "the watermark below what a halted model has not decided",
        (Edit(_WORKER, "self._halts.first(partition),", "None,"),),
        f"{_GUARDS}::test_no_watermark_passes_what_a_halted_model_has_not_decided",
    ),
    Mutant(
        "the watermark that never goes back",
        (
            Edit(
                _CURSORS,
                "if tonumber(ARGV[1]) > tonumber(offset) then offset = ARGV[1] end",
                "offset = ARGV[1]",
            ),
        ),
        "tests/integration/log/test_retention.py::test_a_watermark_never_goes_back",
    ),
    Mutant(
        "the watermark below a commit that a halted model has not applied",
        (
            Edit(
                "consumers/workers/commit_steps.py",
                "            if prepared.group.model_id not in self._halts:\n",
                "            if True:\n",
            ),
        ),
        f"{_GUARDS}::test_no_watermark_passes_a_commit_whose_model_the_fold_has_halted",
    ),
    Mutant(
        "the newest parameters, once more, by a registration that is refused",
        (Edit(_COMMITTER, "if folded.published and self._others_committed(index):", "if False:"),),
        f"{_GUARDS}::test_a_registration_that_is_refused_leaves_the_newest_parameters_last",
    ),
    Mutant(
        "the newest parameters, once more, by who was overtaken",
        (Edit(_PUBLISHER, "if Cursors.noted(answer).published > each[2]\n", "if False\n"),),
        f"{_GUARDS}::test_who_was_overtaken_sends_the_newest_parameters_once_more",
    ),
    Mutant(
        "the newest parameters, once more, by who was stalled for long",
        (Edit(_NEWEST, "if time.monotonic() - since > LATE_SECONDS:", "if False:"),),
        f"{_GUARDS}::test_who_was_stalled_for_longer_than_the_others_wait_sends_the_newest_itself",
    ),
    # -- registrations and refreshes
    Mutant(
        "the mark that all of a generation was staged",
        (
            Edit(
                "consumers/commits/apply.py",
                "if not staging.is_complete(store.client, live, commit.staged.mark):",
                "if not live:",
            ),
            Edit(
                "consumers/commits/recovery/catch_up.py",
                " or len(caught_up.staged.stream.V) != commit.meta.K",
            ),
        ),
        "tests/integration/commits/test_fold.py::test_a_refresh_that_the_store_has_only_part_of_is_lost",
    ),
    Mutant(
        "the wait until a registration is on disk",
        (Edit("consumers/registration/register.py", "            store.wait_durable()\n"),),
        f"{_GUARDS}::test_a_registration_is_durable_before_it_is_appended",
    ),
    Mutant(
        "the ledger that a registration reads again when its commit was void",
        (
            Edit(
                "consumers/registration/register.py",
                "later = self._gone(before, candidate.data) | self._erased_rows(candidate)",
                "later = self._erased_rows(candidate)",
            ),
        ),
        f"{_GUARDS}::test_a_row_that_is_deleted_while_its_model_is_replaced_does_not_come_back",
    ),
    Mutant(
        "the check that a refresh's result still fits",
        (
            Edit(
                "consumers/refresh/transition.py",
                "if result.generation_key != state.meta.generation_key:",
                "if False:",
            ),
        ),
        f"{_GUARDS}::test_a_result_of_another_generation_is_dropped",
    ),
    # -- over the budget
    Mutant(
        "the completion of a version over the budget",
        (
            Edit(
                "consumers/versions/transition.py",
                "if over and state.meta.config.completes and distance_to_exact(state.stream) > 0:",
                "if False:",
            ),
        ),
        f"{_OVER_BUDGET}::test_no_projection_over_the_budget_is_ever_published",
    ),
    Mutant(
        "the job of a version that was over the budget until it was completed",
        (
            Edit(
                "consumers/versions/refresh_schedule.py",
                "over = over_budget or (meta.error.over and meta.config.output_noise is None)",
                "over = meta.error.over and meta.config.output_noise is None",
            ),
        ),
        f"{_OVER_BUDGET}::test_passing_the_budget_orders_a_refresh_that_finds_nothing_left_to_do",
    ),
    Mutant(
        "Q empty after a completed version is read from the log",
        (
            Edit(
                "consumers/commits/recovery/catch_up.py",
                "stream = stream._replace(Q=GrowingRows.empty(config.d))",
                "pass",
            ),
        ),
        f"{_OVER_BUDGET}::test_a_store_that_is_folded_has_the_completed_version",
    ),
    Mutant(
        "the budget of a model that holds its last version",
        (
            Edit(
                "consumers/deletions/compute.py",
                "if config.over_budget is OverBudget.HOLD:",
                "if False:",
            ),
        ),
        f"{_OVER_BUDGET}::test_the_last_version_is_held_until_a_rebuild_without_the_rows",
    ),
    # -- noise on the output
    Mutant(
        "the same rows are published with the same noise",
        (Edit("consumers/versions/certificates.py", "if held is not None:", "if False:"),),
        f"{_OUTPUT_NOISE}::test_the_same_rows_are_published_with_the_same_noise",
    ),
    Mutant(
        "the number of versions that the terms allow",
        (
            Edit(
                "consumers/versions/certificates.py",
                "return terms is not None and state.meta.noised >= terms.versions",
                "return False",
            ),
        ),
        f"{_OUTPUT_NOISE}::test_after_the_last_version_requests_wait_for_other_terms",
    ),
    Mutant(
        "alpha is compared with a bound before a step is published",
        (
            Edit(
                "engine/error/terms.py",
                "return terms.alpha * float(objective.penalty.min())",
                "return 1e3",
            ),
        ),
        f"{_OUTPUT_NOISE}::test_a_step_that_no_bound_covers_waits_for_a_rebuild",
    ),
    # -- inserts and corrections
    Mutant(
        "a deleted id that comes back by an insert",
        (Edit(_ROW_CHANGES, "    if deleted:\n", "    if False:\n"),),
        f"{_CHANGES}::test_a_request_that_cannot_be_applied_is_rejected_whole_with_its_code",
    ),
    Mutant(
        "an insert of a row that is there",
        (Edit(_ROW_CHANGES, "        if known:\n", "        if False:\n"),),
        f"{_CHANGES}::test_a_request_that_cannot_be_applied_is_rejected_whole_with_its_code",
    ),
    Mutant(
        "the tombstones",
        (Edit(_ROW_CHANGES, 'if request.op != "insert":', "if True:"),),
        f"{_CHANGES}::test_a_row_whose_deletion_came_first_does_not_come_to_life_within_a_day",
    ),
    Mutant(
        "a request for a row that the same poll changes waits for the next commit",
        (Edit(_LOAD, "items = items[: distinct_rows(items)]", "pass"),),
        f"{_CHANGES}::test_what_a_request_does_to_a_row_holds_for_the_next_of_the_same_poll",
    ),
    Mutant(
        "a swap brings in what changed since its rows were read",
        (
            Edit(
                "consumers/refresh/swap.py",
                "return catch_up(store, staged, state.meta, later, touched.changed)",
                "return catch_up(store, staged, state.meta, later)",
            ),
        ),
        f"{_CHANGES}::test_a_refresh_beside_changes_loses_none",
    ),
    Mutant(
        "a fold brings in what a swap did",
        (
            Edit(
                "consumers/commits/recovery/catch_up.py",
                "changed = {} if former is None else store.records_if_there(former, named)",
                "changed = dict[str, bytes]()",
            ),
        ),
        f"{_CHANGES}::test_a_swap_that_caught_up_with_changes_is_folded_again",
    ),
    Mutant(
        "rows that ever changed are read together with the head",
        (Edit("engine/store/offline/snapshot.py", "records |= found.changed", "pass"),),
        f"{_CHANGES}::test_rows_that_are_read_while_the_store_goes_back_are_the_newest",
    ),
    Mutant(
        "a compact leaves the age limit where it is",
        (
            Edit(
                "consumers/refresh/transition.py",
                "oldest = before.meta.first_deletion_at if compacted else None",
                "oldest = None",
            ),
        ),
        "tests/integration/store/test_erased_data.py::test_a_compact_does_not_put_off_the_age_limit",
    ),
    Mutant(
        "who drops a refresh result has read the log on",
        (
            Edit(
                "consumers/deletions/batch_processor.py",
                "self._follower.read_on(group.model_id)",
                "pass",
            ),
        ),
        f"{_GUARDS}::test_a_result_is_dropped_only_by_who_knows_every_commit",
    ),
    Mutant(
        "who drops a refresh result has the newest state",
        (
            Edit(
                "consumers/deletions/batch_processor.py",
                "if followed is None or followed.heads.get(group.model_id) != head:",
                "if False:",
            ),
        ),
        f"{_GUARDS}::test_a_result_is_dropped_only_by_who_knows_every_commit",
    ),
    Mutant(
        "the digest of values that are read again",
        (
            Edit(
                "consumers/commits/recovery/change_requests.py",
                "and digest_of(found) == change.digest",
                "",
            ),
        ),
        f"{_CHANGED_ROWS}::test_values_are_read_again_only_where_they_are_the_same",
    ),
    Mutant(
        "one expired value loses no other",
        (
            Edit(
                "consumers/commits/recovery/change_requests.py",
                "if len(offsets) == 1:",
                "if True:",
            ),
        ),
        f"{_CHANGED_ROWS}::test_values_that_lie_close_together_are_read_together",
    ),
    Mutant(
        "rows that the same fold has written",
        (Edit("consumers/commits/recovery/replay.py", "records.update(written.records)", "pass"),),
        f"{_CHANGES}::test_a_store_that_went_back_gets_its_rows_from_the_log_again",
    ),
    Mutant(
        "no values in dead letters",
        (
            Edit(
                "consumers/deletions/dead_letters.py",
                "value, headers = digest_of(record).encode(), ()",
                "pass",
            ),
        ),
        f"{_CHANGES}::test_what_cannot_be_read_leaves_its_digest_in_dead_letters_and_no_value",
    ),
    # -- change data capture
    Mutant(
        "acknowledged requests before a position of captured changes moves",
        (
            Edit(
                "consumers/workers/intake_worker.py",
                "            self._send(translated)\n",
                "            self._advance(records)\n            self._send(translated)\n",
            ),
        ),
        f"{_INTAKE}::test_a_worker_that_dies_at_any_step_loses_and_doubles_nothing",
    ),
    Mutant(
        "rows under their new ids before they go under the old ones",
        (
            Edit(
                "consumers/workers/intake_worker.py",
                "self._producer.publish(self._insertions(one for _, one in translated))",
                "late = self._insertions(one for _, one in translated)",
            ),
            Edit(
                "consumers/workers/intake_worker.py",
                "        self._producer.publish(messages)",
                "        self._producer.publish(messages)\n        self._producer.publish(late)",
            ),
            Edit(
                "consumers/workers/intake_worker.py",
                "        self._at_step(IntakeStep.DELETE)\n",
            ),
            Edit(
                "consumers/workers/intake_worker.py",
                "        self._producer.publish(messages)\n        self._producer",
                "        self._producer.publish(messages)\n"
                "        self._at_step(IntakeStep.DELETE)\n        self._producer",
            ),
        ),
        f"{_INTAKE}::test_a_worker_that_dies_while_a_row_moves_moves_it_once",
    ),
    Mutant(
        "a row that was erased does not come back with another key",
        (
            Edit(
                "consumers/workers/intake_worker.py",
                "if each.former in live:",
                "if True:",
            ),
        ),
        f"{_INTAKE}::test_a_row_moves_to_its_new_key_but_an_erased_one_does_not_come_back",
    ),
    Mutant(
        "values that Debezium invents name nobody",
        (
            Edit(
                "consumers/cdc/translate.py",
                "change.before.get(name) in _ZEROS[columns[name]]",
                "False",
            ),
        ),
        f"{_TRANSLATE}::test_what_the_connector_invented_never_names_a_subject",
    ),
    # -- erasures
    Mutant(
        "an erasure: of two words on a subject the later request counts",
        (
            Edit(
                "engine/store/log_view.lua",
                "return here ~= there or tonumber(at) >= tonumber(before)",
                "return true",
            ),
        ),
        f"{_TWO_ERASERS}::test_a_lift_that_is_written_late_leaves_a_later_erasure_on_the_list",
    ),
    Mutant(
        "an erasure: models that have come to know the subject are asked",
        (Edit(_ERASURE_WORKER, "self._sender.ask([erasure for erasure, _ in news], models)", ""),),
        "tests/integration/erasures/test_suppression.py"
        "::test_rows_inserted_on_their_way_are_found_when_the_index_is_read_again",
    ),
    Mutant(
        "an erasure: a registration leaves out who is on the list",
        (
            Edit(
                "consumers/registration/register.py",
                "data.without_subjects(self._erased(config, data))",
                "data",
            ),
            Edit(
                "consumers/registration/register.py",
                "self._gone(before, candidate.data) | self._erased_rows(candidate)",
                "self._gone(before, candidate.data)",
            ),
        ),
    ),
    Mutant(
        "an erasure: the store must have every commit of the log",
        (
            Edit(
                "consumers/erasures/unsearched.py",
                "erasure.undecided is None or not applied.has(erasure.commits)",
                "erasure.undecided is None",
            ),
        ),
        f"{_TWO_ERASERS}::test_nobody_is_gone_while_the_store_lacks_a_model_that_the_log_has",
    ),
    Mutant(
        "an erasure: the first final receipt counts",
        (
            Edit(
                "engine/store/log_view.lua",
                "if not is_kept(redis.call('HGET', VIEW, field)) then",
                "if true then",
            ),
        ),
        f"{_TWO_ERASERS}::test_if_models_came_meanwhile_the_first_final_receipt_counts",
    ),
    Mutant(
        "an erasure: a receipt that no trusted key signed is none",
        (
            Edit(
                "consumers/erasures/receipts.py",
                "if not is_believed(record, self._trusted):",
                "if False:",
            ),
        ),
        "tests/integration/security/test_unsigned_receipts.py"
        "::test_a_forged_combined_receipt_does_not_keep_an_erasure_from_being_done",
    ),
    Mutant(
        "an erasure: processes with trusted keys have a view of receipts of their own",
        (
            Edit(
                "consumers/erasures/receipts.py",
                'else (SIGNED_ERASURE_RECEIPTS, "signed-receipts")',
                'else (ERASURE_RECEIPTS, "receipts")',
            ),
        ),
        "tests/integration/security/test_unsigned_receipts.py"
        "::test_a_repeat_is_answered_from_what_processes_with_keys_have_read",
    ),
    Mutant(
        "the index: what no trusted key signed is left out",
        (Edit("consumers/server/index/follower.py", "is_believed(record, self._trusted)", "True"),),
        "tests/integration/security/test_unsigned_receipts.py"
        "::test_a_forged_receipt_of_a_request_is_shown_by_nobody",
    ),
    Mutant(
        "an erasure: a registration of other people answers what was deferred",
        (
            Edit(
                "consumers/registration/predecessor.py",
                "if not config.has_subjects_of(request.namespace)",
                "if False",
            ),
        ),
        "tests/integration/erasures/test_unregistered_meanwhile.py"
        "::test_a_deferred_request_is_of_its_namespace_when_its_model_is_replaced",
    ),
    Mutant(
        "an erasure: over HTTP, a receipt is compared with the subject",
        (
            Edit(
                "consumers/server/outcomes.py",
                "return receipt.subject_commitment not in commitments",
                "return False",
            ),
        ),
        "tests/integration/server/test_erasures.py"
        "::test_what_an_id_stands_for_outlives_the_server_and_the_log",
    ),
    Mutant(
        "an erasure: a model that forgot whose rows it has is not covered",
        (Edit(_ERASURE_WORKER, "note_not_covered(done, models)", "pass"),),
        "tests/integration/erasures/test_unregistered_meanwhile.py"
        "::test_a_model_that_forgets_whose_rows_it_has_before_it_answers_is_not_covered",
    ),
    Mutant(
        "an erasure: a request is about subjects of its own namespace",
        (Edit(_DECIDE, "self.state.meta.config.has_subjects_of(request.namespace)", "True"),),
        "tests/integration/erasures/test_unregistered_meanwhile.py"
        "::test_a_person_of_another_namespace_keeps_the_rows_of_a_model_that_was_replaced",
    ),
    Mutant(
        "an erasure: over HTTP, the id of another person's is a conflict",
        (
            Edit(
                "consumers/server/api/sending.py",
                "await run_in_threadpool(_is_taken, services, request_id, asked)",
                "False",
            ),
        ),
        "tests/integration/server/test_erasures.py"
        "::test_an_id_with_another_subject_is_a_conflict_on_another_server_too",
    ),
    # -- preprocessing inside a model
    Mutant(
        "statistics that follow a commit",
        (
            Edit(
                "engine/preprocess/live.py",
                "return published_by(stream, method), replace(self, answer=answer)",
                "return published_by(stream, method), self",
            ),
        ),
    ),
    Mutant(
        "the rows of a commit leave the sums when it is folded",
        (
            Edit(
                "consumers/commits/recovery/catch_up.py",
                "return Recomputed(stream, state.pipeline.sums_after(state.generation, moved))",
                "return Recomputed(stream, state.pipeline.answer.sums)",
            ),
        ),
        "tests/integration/preprocess/test_fold.py::test_a_store_that_goes_back_gets_its_sums_back",
    ),
    Mutant(
        "the bound of a logistic pipeline counts the remainder",
        (
            Edit(
                "engine/preprocess/remainder.py",
                "nu = min(floor.dual(gradient) for floor in floors) + moved.remainder",
                "nu = min(floor.dual(gradient) for floor in floors)",
            ),
        ),
        f"{_REMAINDER}::test_the_bound_holds_and_is_of_use_over_a_stream",
    ),
    Mutant(
        "rows that came and went since the sums were written are counted",
        (
            Edit(
                "engine/store/layout/preprocessing.py",
                "for sign in (1, -1):",
                "for sign in (1,):",
            ),
        ),
        f"{_PREPROCESSING}::test_sums_come_back_with_the_rows_since",
    ),
    Mutant(
        "what is solved with the factor of a compact has that factor's error",
        (
            Edit(
                "engine/refresh/refreshes.py",
                "Generation(number, objective, theta_b, smallest, largest, off, off_by_factor)",
                "Generation(number, objective, theta_b, smallest, largest, off)",
            ),
        ),
        "tests/unit/engine/refresh/test_compact.py"
        "::test_the_factor_of_a_compact_is_as_wrong_as_it_was_measured",
    ),
    Mutant(
        "sums that were written whole are not those that a worker knew",
        (
            Edit(
                "engine/store/sums.py",
                "redis.call('HSET', HEAD, 'arrays', ARGV[2])\n",
                "",
            ),
        ),
        "tests/integration/preprocess/test_fold.py"
        "::test_deleted_rows_beside_the_sums_are_removed_within_the_hour",
    ),
    Mutant(
        "a category whose last row has gone is unknown",
        (
            Edit(
                "engine/store/layout/fitted_columns.py",
                "_without_rows(pipeline.present[part.features])",
                "()",
            ),
        ),
        f"{_PIPELINES}::test_a_category_that_vanishes_is_unknown_and_its_weight_0",
    ),
    Mutant(
        "a category whose last row has gone has the weight 0",
        (
            Edit(
                "engine/preprocess/published.py",
                "theta[: len(base.constant)][_idle(base, answer)] = 0.0",
                "pass",
            ),
        ),
        f"{_PIPELINES}::test_a_category_that_vanishes_is_unknown_and_its_weight_0",
    ),
    Mutant(
        "the error of V is in the bound of the inverse",
        (
            Edit(
                "engine/deletion/residual.py",
                "return Rounded(residual, 2.0 * off * magnified_by)",
                "return Rounded(residual, 0.0)",
            ),
        ),
        f"{_BOUNDS}::test_a_typing_error_that_is_righted_leaves_no_false_bound",
    ),
    Mutant(
        "no refresh but a rebuild helps once V has lost its digits",
        (Edit("engine/refresh/policy.py", "    if facts.lost:\n", "    if False:\n"),),
        "tests/unit/engine/refresh/test_refreshes.py"
        "::test_a_stream_that_has_lost_its_digits_is_rebuilt",
    ),
    Mutant(
        "the rows have a second opinion of the Hessian's smallest eigenvalue",
        (
            Edit(
                "engine/error/drift.py",
                "if not self.smallest >= self.claimed:",
                "if False:",
            ),
            Edit(
                "engine/error/drift.py",
                "opinion.distance(smallest)",
                "0.0",
            ),
            Edit(
                "engine/error/drift.py",
                "if not self.inverse <= RESIDUAL:",
                "if False:",
            ),
        ),
        "tests/unit/engine/error/test_second_opinion.py::test_it_finds_what_v_has_lost",
    ),
    Mutant(
        "a failed drift audit is said at once",
        (
            Edit(
                "consumers/refresh/transition.py",
                "        if result.drifted:\n            stream = disbelieve(stream)\n",
                "",
            ),
        ),
        "tests/integration/refresh/test_drift.py"
        "::test_a_damaged_row_of_v_orders_a_rebuild_that_says_why",
    ),
    Mutant(
        "a rounded centre moves a penalised intercept",
        (
            Edit(
                "engine/preprocess/published.py",
                "    if weight == 0.0:\n",
                "    if True:\n",
            ),
        ),
        f"{_REMAINDER}::test_one_class_left_far_from_0_has_a_bound_above_the_truth",
    ),
    Mutant(
        "a change of a library model is adopted once it is whole",
        (
            Edit(
                "engine/estimator/changing.py",
                "            state = before.draft()\n",
                "            state = before\n",
            ),
        ),
        "tests/unit/engine/estimator/test_atomic.py"
        "::test_an_operation_that_fails_at_any_call_changes_nothing",
    ),
    Mutant(
        "changes of a library model take turns",
        (
            Edit(
                "engine/estimator/changing.py",
                "        with self._lock:\n            before = self._fitted\n",
                "        with nullcontext():\n            before = self._fitted\n",
            ),
            Edit(
                "engine/estimator/changing.py",
                "from dataclasses import replace\n",
                "from contextlib import nullcontext\nfrom dataclasses import replace\n",
            ),
        ),
        "tests/unit/engine/estimator/test_threads.py"
        "::test_changes_from_four_threads_leave_what_one_thread_would",
    ),
    # -- exact sums, and the rounded minimiser
    Mutant(
        "the distance to the solution counts in what it rounds to",
        (
            Edit(
                _ROUNDING,
                "    beyond = 2.0 * distance + 4.0 * NEAREST * np.abs(low)\n",
                "    beyond = 0.0 * distance + 4.0 * NEAREST * np.abs(low)\n",
            ),
        ),
        f"{_TEST_ROUNDING}::test_what_is_rounded_is_rounded_the_same_anywhere_within_the_distance",
    ),
    Mutant(
        "a tie is not proved",
        (Edit(_ROUNDING, " + 4.0 * NEAREST * np.abs(low)\n", "\n"),),
        f"{_TEST_ROUNDING}::test_what_is_as_near_to_a_tie_as_the_bound_is_not_proved",
    ),
    Mutant(
        "what vanishes beside a larger coefficient is not proved",
        (Edit(_ROUNDING, " & (enough | ~y.places.any(axis=0))"),),
        f"{_TEST_ROUNDING}::test_what_vanishes_beside_another_number_is_not_proved",
    ),
    Mutant(
        "a residual whose squares vanish counts",
        (Edit(_ROUNDING, "_VANISHED = 1e-150", "_VANISHED = 0.0"),),
        f"{_TEST_ROUNDING}::test_coefficients_of_one_target_may_be_of_any_size",
    ),
    Mutant(
        "a subnormal coefficient is not rounded twice",
        (Edit(_ROUNDING, "if (normal | (point.nearest.T == 0)).all() else None"),),
        f"{_TEST_ROUNDING}::test_subnormal_coefficients_are_rounded_once",
    ),
    Mutant(
        "rounding counts in the proof that a matrix is definite",
        (Edit(_ROUNDING, "if not shift > 4.0 * unsure:", "if not shift > 0.0:"),),
        f"{_TEST_ROUNDING}::test_a_matrix_that_only_rounding_makes_definite_is_not_proved",
    ),
    Mutant(
        "what is wrong with the inverse counts in the leverage, squared",
        (Edit(_RUNNING, " + off * off / inverse.smallest\n", "\n"),),
        f"{_TEST_RUNNING}::test_the_bound_of_leverage_holds_for_an_inverse_that_is_wrong",
    ),
    Mutant(
        "what is wrong with the inverse counts in the leverage",
        (Edit(_RUNNING, "    H = root.T @ V + V.T @ S\n", "    H = root.T @ V\n"),),
        f"{_TEST_RUNNING}::test_the_bound_of_leverage_holds_for_an_inverse_that_is_wrong",
    ),
    Mutant(
        "how the matrix was rounded counts in the leverage",
        (Edit(_RUNNING, "    off = float(", "    rounded = 0.0\n    off = float("),),
        f"{_TEST_RUNNING}::test_the_bound_of_leverage_counts_how_the_matrix_was_rounded",
    ),
    Mutant(
        "rows that leave lower the bound of the smallest eigenvalue",
        (Edit(_RUNNING, "inverse.smallest * (1.0 - leverage)", "inverse.smallest"),),
        f"{_TEST_RUNNING}::test_the_smallest_eigenvalue_is_never_below_its_bound",
    ),
    Mutant(
        "a column that was absent is not any more",
        (Edit(_RUNNING, "        if absent.any() and ", "        if False and "),),
        f"{_TEST_RUNNING}::test_the_first_value_of_a_column_arrives",
    ),
    Mutant(
        "a copy has no row that left",
        (
            Edit(
                _RUNNING,
                "        return Solution.of, (self.live_sums, self.penalty)\n",
                "        return Solution.of, (self.sums, self.penalty)\n",
            ),
        ),
        f"{_TEST_RUNNING}::test_no_row_that_left_is_in_a_copy",
    ),
    Mutant(
        "float64 adds up no more products than it has room for",
        (
            Edit("engine/exact/rows.py", "range(0, d, SUMMED)", "range(0, d, d)"),
            Edit("engine/exact/rows.py", "slice(start, start + SUMMED)", "slice(start, start + d)"),
        ),
        "tests/unit/engine/exact/test_rows.py"
        "::test_the_pull_is_exact_with_more_features_than_float64_adds_up",
    ),
    Mutant(
        "what is not proved is not called rounded",
        (
            Edit(
                "engine/error/estimate.py",
                "        return stream.solution.minimiser.rounded\n",
                "        return True\n",
            ),
        ),
        "tests/unit/engine/test_fitted_linear.py"
        "::test_what_nothing_has_proved_is_not_called_rounded",
    ),
    Mutant(
        "the sweep spares the data set of a live model",
        (
            Edit(
                "engine/store/offline/staging.py",
                "        if name in (*live.generations, *live.datasets):",
                "        if name in live.generations:",
            ),
        ),
        "tests/integration/registration/test_register.py"
        "::test_what_a_registration_that_was_cut_short_made_live_is_not_swept",
    ),
    Mutant(
        "keys of a rebuild that the store has lost expire",
        (
            Edit(
                "consumers/commits/shred.py",
                "(staged.generation, *_generations(staged.former))",
                "_generations(staged.former)",
            ),
        ),
        "tests/integration/store/test_row_keys.py"
        "::test_the_keys_of_a_swap_that_the_store_lost_with_its_rows_expire",
    ),
    Mutant(
        "a refresh that was lost with its topic is ordered again",
        (
            Edit(
                "consumers/registration/topic_loss.py",
                "        producer.publish([*rest, *self._pending_jobs(plan.topic)])\n",
                "        producer.publish(rest)\n",
            ),
        ),
        f"{_LOST_TOPICS}::test_a_rebuild_that_was_lost_with_its_topic_is_done_again",
    ),
    Mutant(
        "an erasure counts once at each place of the log",
        (
            Edit(
                "consumers/suppression/suppressions.py",
                "return [] if change.stored in self._view.get(marks).values() else",
                "return [] if subject_id in self.of(namespace, [subject_id]) else",
            ),
        ),
        f"{_LOST_TOPICS}::test_an_erasure_that_is_sent_again_behind_its_lift_puts_the_subject_back",
    ),
    Mutant(
        "the digest below the apply cursor moves past a void record",
        (Edit(_PARTITION_FOLD, "        elif tail.offset != self._end:", "        elif False:"),),
        "tests/integration/commits/test_records.py"
        "::test_a_void_record_at_the_end_is_no_lost_one_for_who_comes_next",
    ),
    # -- exact sums in a store
    Mutant(
        "rows that moved after sums were made whole lie beside them",
        (
            Edit(
                _STORED_SUMS,
                "    first = 0 if whole else len(before.kept.since)\n",
                "    first = len(after.kept.since) if whole else len(before.kept.since)\n",
            ),
        ),
        f"{_TEST_STORED_SUMS}::test_what_steps_write_is_what_is_read_whole_or_beside",
    ),
    Mutant(
        "rows that whole sums include do not stay beside them",
        (
            Edit(
                "engine/store/apply.lua",
                "if manifest.clear_sums then redis.call('DEL', SUMS) end\n",
                "",
            ),
        ),
        f"{_TEST_SUMS_OF_MODELS}::test_rows_beside_the_sums_are_never_many",
    ),
    Mutant(
        "stored sums must give the parameters of the head",
        (
            Edit(
                _STORED_SUMS,
                "    if theta is not None and not np.array_equal(solution.minimiser.theta, theta):",
                "    if False:",
            ),
        ),
        f"{_TEST_SUMS_OF_MODELS}::test_damaged_sums_halt_the_model_by_one_line",
    ),
    Mutant(
        "a rebuild says that the sums were damaged",
        (
            Edit(
                "consumers/refresh/job.py",
                "    return choice if fault is None else replace(choice, reason=",
                "    return choice if True else replace(choice, reason=",
            ),
        ),
        f"{_TEST_SUMS_OF_MODELS}::test_sums_or_rows_that_were_damaged_are_found_digit_for_digit",
    ),
    Mutant(
        "a worker that ends leaves no row beside sums",
        (
            Edit(
                "consumers/workers/deletion_worker.py",
                "            for state in filter(has_rows_beside, self._states):",
                "            for state in ():",
            ),
        ),
        f"{_TEST_SUMS_OF_MODELS}::test_a_worker_that_ends_leaves_no_row_beside_the_sums",
    ),
    Mutant(
        "a library model remembers no row that it has deleted",
        (
            Edit(
                "engine/exact/running.py",
                "        if self.kept is None:\n            return solution\n"
                "        kept = self.kept.joined(moved) or "
                "replace(solution.whole(), most=self.kept.most)\n",
                "        before = self.kept or Kept(self.live_sums)\n"
                "        kept = before.joined(moved) or "
                "replace(solution.whole(), most=before.most)\n",
            ),
        ),
        f"{_TEST_STORED_SUMS}::test_sums_that_no_store_keeps_remember_no_row",
    ),
    Mutant(
        "no row lies beside exact sums where rows are encrypted",
        (Edit("engine/store/generation.py", "0 if encrypted else MOST", "MOST"),),
        "tests/integration/store/test_row_keys.py::test_no_row_lies_beside_exact_sums",
    ),
    # -- pipelines with exact sums
    Mutant(
        "a pipeline's statistics have no weights",
        (
            Edit(
                "engine/preprocess/rounded/solution.py",
                "        if plain is None and not _plain(rows):\n            plain = sums\n",
            ),
        ),
        f"{_TEST_ROUNDED}::test_weights_enter_the_last_step_alone_also_those_that_come_later",
    ),
    Mutant(
        "a pipeline's parameter is known once both ends of its ball round alike",
        (
            Edit(
                "engine/preprocess/rounded/minimiser.py",
                " if (theta == high).all() else None",
                "",
            ),
        ),
        f"{_TEST_ROUNDED}::test_a_parameter_of_0_is_0",
    ),
    Mutant(
        "a store has the sums without weights of a pipeline, too",
        (
            Edit(
                _STORED_SUMS,
                "    return fields if kept.plain is None else "
                "{**fields, _PLAIN: _packed(kept.plain)}\n",
                "    return fields\n",
            ),
        ),
        f"{_TEST_STORED_SUMS}::test_a_pipeline_is_read_as_it_was_written_whole_or_beside",
    ),
    Mutant(
        "an audit compares the sums without weights of a pipeline, too",
        (
            Edit(
                "engine/preprocess/rounded/solution.py",
                "            _plain(rows) if plain is None else "
                "Sums.of(_unweighted(rows), plain.unit).equal(plain)\n",
                "            True\n",
            ),
        ),
        f"{_TEST_STORED_SUMS}::test_an_audit_finds_damaged_sums_of_either_kind",
    ),
)
