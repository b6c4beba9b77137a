"""The mutants: what is missing, what must notice it, and how it is taken out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.proof.mutants.edits import Edit, always, never, put, text, without

SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class Mutant:
    """The product without one of its guards.

    Attributes
    ----------
    name
        What is missing.
    caught_by
        `SIMULATION`, or the name of the test that must fail: for guards that others stand before,
        so that no run of workers reaches them, or few do.
    edits
        How it is taken out.
    """

    name: str
    caught_by: str
    edits: tuple[Edit, ...]


def mutant(name: str, caught_by: str, *edits: Edit) -> Mutant:
    """Return one mutant."""
    return Mutant(name, caught_by, edits)


MUTANTS = (
    # -- weights of classes
    mutant(
        "balanced weights follow the rows that are left",
        "test_a_linear_model_is_the_refitted_ridge_classifier",
        put("Fitted.needs_refit", "self.members.balanced", "False"),
    ),
    mutant(
        "a corrected row takes the weight of its new class",
        "test_a_correction_keeps_a_rows_own_weight_and_takes_that_of_its_new_class",
        put("ChangingModel._weighed", "weights is None", "True"),
    ),
    mutant(
        "a corrected row keeps its own weight, not that of its former class",
        "test_mixed_requests_over_rebuilds_are_as_if_refitted_with_the_weights",
        put("changed_rows.old_weights", "config.class_weights", "False"),
    ),
    # -- transformers that are fitted anew
    mutant(
        "an id that was deleted stays known when a model is fitted anew",
        "test_a_deleted_id_never_comes_back_and_nothing_of_its_row_is_kept",
        put("refitting.changed", "state.members.with_deleted(gone)", "state.members"),
    ),
    mutant(
        "a row whose features have moved is corrected",
        "test_a_row_that_changes_its_bin_is_corrected_in_the_same_step",
        put("refitting.changed", "np.concatenate([arrived, moved])", "arrived"),
        put("refitting.changed", "tuple(after.ids[i] for i in moved)", "()"),
    ),
    mutant(
        "an intercept whose penalty ends is found by a fit",
        "test_a_step_is_no_way_to_an_intercept_without_a_penalty",
        put("refitting._allows_step", "one_sided(kind, held)", "False"),
    ),
    mutant(
        "each fit begins with the transformer as it was given",
        "test_each_fit_begins_with_the_random_state_that_was_given",
        put("RefittedRows.changed", "self.unfitted", "self.transformer"),
    ),
    mutant(
        "a transformer that clone returns as it is is refused",
        "test_what_stays_as_it_is_cannot_be_fitted_anew",
        never("Refitted.__init__", "kept"),
    ),
    mutant(
        "later fits use the parameters of the first",
        "test_a_parameter_that_is_set_counts_from_the_next_fit_on",
        put("BaseModel.fit", "as_now._fitted_rows", "self._fitted_rows"),
    ),
    # -- many models
    mutant(
        "a sign of life while the states of a batch are loaded",
        "test_a_batch_of_models_that_are_slow_to_load_costs_no_lease",
        without("BatchLoader._read_state", "self._progress()"),
    ),
    # -- keys that the store has lost
    mutant(
        "the comparison of a look-up with what the head counts",
        "test_a_lost_key_comes_back_from_commits_before_anything_is_decided",
        put("_read_answers", "not lost", "True"),
    ),
    mutant(
        "what the script counts stays while a key lacks entries",
        "test_what_the_log_no_longer_has_halts_the_model_until_a_person_accepts_it",
        never("apply.lua", "if not whole then"),
    ),
    mutant(
        "a fold of a model that lost keys begins where the log begins",
        "test_a_lost_key_comes_back_from_commits_before_anything_is_decided",
        without("Fold._run", "self._restore_keys(keys, partition)"),
    ),
    mutant(
        "a replacement of a model that lost keys is accepted aloud",
        "test_what_the_log_no_longer_has_halts_the_model_until_a_person_accepts_it",
        never("Registrar._read", "isinstance(halt, KeysLost)"),
    ),
    # -- from scikit-learn
    mutant(
        "the weight of the rows in the ridge of a Poisson model",
        "test_a_poisson_regressor_becomes_a_model_and_one_again",
        never("importing.from_sklearn", "given.of_mean"),
    ),
    # -- counts
    mutant(
        "the last count above 0 waits for a rebuild that penalises the intercept",
        "test_once_only_counts_of_zero_are_left_a_rebuild_penalises_the_intercept",
        put("compute._class_counts", "not unbounded(kind, counts)", "True"),
    ),
    mutant(
        "a row whose predicted mean overflows is out of range",
        "test_counts_below_zero_are_refused_and_so_are_rows_whose_mean_overflows",
        without("compute._linearised", "check_means(at, changed)"),
    ),
    mutant(
        "counts of which none is 0 have lost no class",
        "test_no_bound_of_hostile_rows_is_below_the_truth",
        put("successor_of", "unbounded(objective.kind, counts)", "0 in counts"),
    ),
    mutant(
        "counts below 0 are refused",
        "test_counts_below_zero_are_refused_and_so_are_rows_whose_mean_overflows",
        without("candidate._objective", "check_counts(rows)"),
    ),
    mutant(
        "an independent refit of counts expects means",
        "test_versions_are_those_of_the_library",
        put("oracle._means", "np.exp(margin)", "margin"),
    ),
    # -- classes that share one softmax
    mutant(
        "a softmax model has at least three classes",
        "test_two_classes_are_refused_and_so_is_a_hessian_that_is_too_large",
        without("candidate._objective", "check_classes(rows.y.shape[1])"),
    ),
    mutant(
        "a row that no softmax fit can take is out of range",
        "test_a_row_that_is_too_large_is_out_of_range_and_an_unknown_class_is_refused",
        put(
            "attainable._least_of_softmax",
            "gradient_allowance(float(shares.sum())) / generation.smallest",
            "0.0",
        ),
    ),
    mutant(
        "rows in files of a softmax model are refused",
        "test_what_a_kind_has_not_is_refused_in_a_line",
        put("checks.check_row_files", "config.kind is Kind.SOFTMAX", "False"),
    ),
    mutant(
        "the stiffness that a softmax has lost is looked for",
        "test_the_least_stiffness_is_that_of_the_hessians_or_below",
        put("coupled_sample._least_stiffness", "not far.any()", "True"),
    ),
    mutant(
        "an independent refit of a softmax expects probabilities",
        "test_a_rebuilt_version_passes_and_another_one_does_not",
        put("oracle._means", "odds / odds.sum(axis=1, keepdims=True)", "odds"),
    ),
    mutant(
        "a stored gauge is above 0",
        "test_a_factor_that_is_damaged_or_gone_halts_the_model",
        put("generation._info", 'info.get("gauge", 1.0) > 0', "True"),
    ),
    # -- rows out of range
    mutant(
        "the least error of a version with new rows",
        "test_a_row_with_which_no_version_keeps_the_budget_is_rejected_and_changes_nothing",
        without("compute._linearised", "check_least(at, changed, factor, least)"),
    ),
    mutant(
        "the deletion of a long row ends the pause after failed refreshes",
        "test_the_deletion_of_a_row_that_was_taken_is_not_held_up_by_it",
        never("compute.compute", "_ends_pause(state, deletions, lookup)"),
    ),
    # -- appending: the log is the compare-and-set
    mutant(
        "the gap read: the journal believes every acknowledgement",
        "test_who_comes_second_reads_the_gap",
        put(
            "Journal._won",
            "same_leader and same_topic and (set(offsets) == set(expected))",
            "offsets",
        ),
    ),
    mutant(
        "the epoch of an acknowledgement",
        "test_an_append_under_another_leader_is_read_again",
        put(
            "Journal._won",
            "same_leader and same_topic and (set(offsets) == set(expected))",
            "same_topic and set(offsets) == set(expected)",
        ),
    ),
    mutant(
        "the digest of the record below the tail",
        "test_another_record_at_the_tail_is_a_log_that_was_reset",
        without("check_kept", "known_by(record)"),
    ),
    mutant(
        "a fold takes up the models of its own partition alone",
        "test_a_void_record_is_skipped",
        without("read_open", "partition.index"),
    ),
    mutant(
        "an erasure waits for halted models of its own namespace alone",
        "test_an_erasure_in_another_namespace_is_complete",
        put("Unsearched.news", "late & concerned[erasure.request.namespace]", "late"),
    ),
    mutant(
        "the prev check of a record",
        "test_a_commit_of_another_predecessor_does_not_count",
        without("judge", "part.prev"),
    ),
    mutant(
        "the number check of a record",
        "test_a_commit_of_another_predecessor_does_not_count",
        without("judge", "part.number <= head.commit"),
    ),
    mutant(
        "the partition check of a record",
        "test_a_commit_of_another_predecessor_does_not_count",
        without("judge", "commit_partition(part.model_id)"),
    ),
    mutant(
        "the random wait of a winner",
        "test_the_winner_who_saw_a_void_record_waits_before_its_next_append",
        without("Journal.note_rival", "self._contested.add(model_id)"),
    ),
    mutant(
        "the halt on a wrong key",
        "test_a_halted_model_keeps_cursors_of_its_own_while_its_neighbour_goes_on",
        put("opener.Opener.open", "raise", "return None"),
    ),
    mutant(
        "the id of the topic that cursors are of",
        "test_a_commits_topic_that_was_made_again_is_a_log_that_was_reset",
        never("Fold._cursors", "partition.topic_id"),
    ),
    mutant(
        "the key that opened the head, before anything is appended with another",
        "test_nobody_appends_who_could_not_open_the_head",
        without("BatchLoader._state_of", "self._seals.check(group.model_id, state.seal)"),
    ),
    # -- applying
    mutant(
        "the comparison with what a commit continues",
        "test_the_script_compares_before_it_writes",
        without("apply.lua", "at < manifest.commit - 1"),
        without("apply.lua", "~= manifest.prev"),
    ),
    mutant(
        "the digest of a commit that the head has already",
        "test_the_script_compares_before_it_writes",
        without("apply.lua", "held[2] ~= manifest.digest"),
    ),
    mutant(
        "the removal of what versions disclose of erased people",
        "test_nothing_is_kept_of_a_person_who_is_erased",
        without("apply.lua", "manifest.undisclosed"),
    ),
    mutant(
        "the entries that a row has already",
        "test_changed_rows_add_up",
        text(
            "apply.lua",
            "disclosed[i], entries .. disclosed[i + 1])",
            "disclosed[i], disclosed[i + 1])",
        ),
    ),
    mutant(
        "the id of the arrays",
        "test_the_script_compares_before_it_writes",
        text("apply.lua", "if manifest.arrays and (held[3]", "if false and (held[3]"),
    ),
    mutant(
        "the generation whose rows are erased",
        "test_the_script_compares_before_it_writes",
        text("apply.lua", "if manifest.rows and (held[4]", "if false and (held[4]"),
    ),
    mutant(
        "the ledger check of the apply script",
        "test_the_script_compares_before_it_writes",
        without("apply.lua", "a row in the ledger"),
    ),
    mutant(
        "the cursor's condition: only from behind the record before",
        "test_the_cursor_passes_a_record_only_from_behind_the_one_before",
        text("apply.lua", "if low <= cursor and cursor <= offset then", "if cursor <= offset then"),
    ),
    mutant(
        "a final receipt that never changes",
        "test_a_final_receipt_in_the_index_never_changes",
        text(
            "apply.lua",
            "if not kept or (waits and string.sub(receipt, 1, 1) == 'F') then",
            "if true then",
        ),
    ),
    mutant(
        "the look whether what becomes live is there",
        "test_the_script_compares_before_it_writes",
        without("apply.lua", "'EXISTS', KEYS[i]"),
    ),
    # -- folding
    mutant(
        "publishing what a fold reads",
        "test_what_a_dead_worker_appended_is_finished_although_the_requests_are_gone",
        without("PartitionFold._publish", "self._producer.publish"),
    ),
    mutant(
        "the refold of records that heads have already",
        "test_what_heads_have_is_folded_again",
        put(
            "PartitionFold.run",
            "logged.place.offset >= behind.apply",
            "logged.place.offset >= behind.apply and logged.commit.number > "
            "heads.get(logged.commit.model_id, Head()).commit",
        ),
    ),
    mutant(
        "cursors of its own for a model that halts",
        "test_a_halted_model_keeps_cursors_of_its_own_while_its_neighbour_goes_on",
        without("PartitionFold._halt", "self._store.cursors.note_behind(self._keys, model_id)"),
        text(
            "cursors.lua",
            "    redis.call('HSETNX', CURSORS, 'behind:' .. ARGV[i], text({apply, published}))\n"
            "  end\n  redis.call('HSET', CURSORS, which,",
            "  end\n  redis.call('HSET', CURSORS, which,",
        ),
    ),
    mutant(
        "what counts before a gap",
        "test_a_store_that_went_back_is_brought_up_to_a_gap",
        put("PartitionFold.run", "self._gaps[model]", "self._halted[model]"),
    ),
    mutant(
        "the keys of rows that a dead worker erased",
        "test_a_fold_drops_the_keys_that_a_dead_worker_did_not",
        without("PartitionFold._note_applied", "self._shred(logged.commit, change.live.name)"),
        without("PartitionFold._publish", "self._shred"),
    ),
    mutant(
        "the look of an idle worker at its store",
        "test_a_worker_that_is_idle_notices_that_its_store_went_back",
        never("Follower.check", "tail.offset"),
    ),
    # -- deciding
    mutant(
        "the opening: requests from before the registration are the model's",
        "test_a_request_from_before_the_opening_is_of_no_model",
        put("BatchLoader._state_of", "(state.opening or {}).get(place, 0)", "0"),
    ),
    mutant(
        "reading on before a model is said to be unknown",
        "test_a_model_is_unknown_only_by_an_end_asked_for_after_the_poll",
        without("BatchLoader._state_of", "self._follower.read_on(group.model_id)"),
    ),
    mutant(
        "the head that was looked up beside what a batch names",
        "test_nothing_is_decided_on_what_another_state_says",
        without("BatchLoader.load", "not lookup.is_of"),
    ),
    mutant(
        "next offsets: records are read again as if nobody had decided them",
        "test_guards.py::test_what_is_decided_is_not_decided_again",
        put("BatchLoader._state_of", "max(opening, state.offsets.get(place, 0))", "opening"),
    ),
    mutant(
        "the ledger check of a decision",
        "test_a_row_is_deleted_once_and_a_request_answered_once",
        never("_Decider._find", "lookup.ledger"),
    ),
    mutant(
        "the final-receipt check of a decision",
        "test_a_row_is_deleted_once_and_a_request_answered_once",
        never("_Decider._repeat", "stored is not None"),
    ),
    # -- publishing
    mutant(
        "the watermark behind publication",
        "test_no_watermark_passes_what_is_not_acknowledged",
        without("Publisher._acknowledge", "flush.wait(_SECONDS)"),
    ),
    mutant(
        "the store before its readers",
        "test_readers_are_told_what_the_store_has",
        without("DeletionWorker._process", "self._commits.apply(won)"),
        put(
            "DeletionWorker._process",
            "self._publish(poll, began)",
            "self._publish(poll, began)\nself._commits.apply(won)",
        ),
    ),
    mutant(
        "the watermark below what a halted model has not decided",
        "test_no_watermark_passes_what_a_halted_model_has_not_decided",
        put("DeletionWorker._first_unfinished", "self._halts.first(partition)", "None"),
    ),
    mutant(
        "the watermark that never goes back",
        "test_a_watermark_never_goes_back",
        text("store.cursors", "tonumber(ARGV[1]) > tonumber(offset)", "true"),
    ),
    mutant(
        "the watermark below a commit that a halted model has not applied",
        "test_no_watermark_passes_a_commit_whose_model_the_fold_has_halted",
        always("CommitSteps.apply", "self.halts"),
    ),
    mutant(
        "the newest parameters, once more, by a registration that is refused",
        "test_a_registration_that_is_refused_leaves_the_newest_parameters_last",
        never("Committer.fold", "folded.published"),
    ),
    mutant(
        "the newest parameters, once more, by who was overtaken",
        "test_who_was_overtaken_sends_the_newest_parameters_once_more",
        put("Publisher.apply", "Cursors.noted(answer).published > each[2]", "False"),
    ),
    mutant(
        "the newest parameters, once more, by who was stalled for long",
        "test_who_was_stalled_for_longer_than_the_others_wait_sends_the_newest_itself",
        never("NewestParameters.acknowledged", "LATE_SECONDS"),
    ),
    # -- registrations and refreshes
    mutant(
        "the mark that all of a generation was staged",
        "test_a_refresh_that_the_store_has_only_part_of_is_lost",
        put("staged_keys", "staging.is_complete(store.client, live, commit.staged.mark)", "live"),
        without("swapped", "commit.meta.K"),
    ),
    mutant(
        "the wait until a registration is on disk",
        "test_a_registration_is_durable_before_it_is_appended",
        without("Registrar._commit", "store.wait_durable()"),
    ),
    mutant(
        "the ledger that a registration reads again when its commit was void",
        "test_a_row_that_is_deleted_while_its_model_is_replaced_does_not_come_back",
        without("Registrar._onto", "self._gone(before, candidate.data)"),
    ),
    mutant(
        "the check that a refresh's result still fits",
        "test_a_result_of_another_generation_is_dropped",
        never("stale_reason", "result.generation_key"),
    ),
    # -- over the budget
    mutant(
        "the completion of a version over the budget",
        "test_no_projection_over_the_budget_is_ever_published",
        never("Draft.number_version", "state.meta.config.completes"),
    ),
    mutant(
        "the job of a version that was over the budget until it was completed",
        "test_passing_the_budget_orders_a_refresh_that_finds_nothing_left_to_do",
        put(
            "refresh_reason",
            "over_budget or (meta.error.over and meta.config.output_noise is None)",
            "meta.error.over and meta.config.output_noise is None",
        ),
    ),
    mutant(
        "Q empty after a completed version is read from the log",
        "test_a_store_that_goes_back_is_brought_to_what_the_log_says",
        without("catch_up.recomputed", "stream._replace"),
    ),
    mutant(
        "the budget of a model that holds its last version",
        "test_the_last_version_is_held_until_a_rebuild_without_the_rows",
        never("compute._delete", "OverBudget.HOLD"),
    ),
    # -- noise on the output
    mutant(
        "the same rows are published with the same noise",
        "test_the_same_rows_are_published_with_the_same_noise",
        never("with_noise", "held is not None"),
    ),
    mutant(
        "the number of versions that the terms allow",
        "test_after_the_last_version_requests_wait_for_other_terms",
        put("versions_spent", "terms is not None and state.meta.noised >= terms.versions", "False"),
    ),
    mutant(
        "alpha is compared with a bound before a step is published",
        "test_a_step_that_no_bound_covers_waits_for_a_rebuild",
        put("gradient_limit", "terms.alpha * float(objective.penalty.min())", "1000.0"),
    ),
    # -- inserts and corrections
    mutant(
        "a deleted id that comes back by an insert",
        "test_a_request_that_cannot_be_applied_is_rejected_whole_with_its_code",
        never("_Decider._rows_refuse", "deleted"),
    ),
    mutant(
        "an insert of a row that is there",
        "test_a_request_that_cannot_be_applied_is_rejected_whole_with_its_code",
        never("_Decider._rows_refuse", "known"),
    ),
    mutant(
        "the tombstones",
        "test_a_row_whose_deletion_came_first_does_not_come_to_life_within_a_day",
        always("_Decider._tombstones_refuse", "request.op"),
    ),
    mutant(
        "a request for a row that the same poll changes waits for the next commit",
        "test_what_a_request_does_to_a_row_holds_for_the_next_of_the_same_poll",
        without("BatchLoader._first_batch", "distinct_rows(items)"),
    ),
    mutant(
        "a swap brings in what changed since its rows were read",
        "test_a_refresh_beside_changes_loses_none",
        put(
            "_up_to_date",
            "catch_up(store, staged, meta, later, touched.changed)",
            "catch_up(store, staged, meta, later)",
        ),
    ),
    mutant(
        "a fold brings in what a swap did",
        "test_a_swap_that_caught_up_with_changes_is_folded_again",
        put(
            "swapped",
            "{} if former is None else store.records_if_there(former, named)",
            "dict[str, bytes]()",
        ),
    ),
    mutant(
        "rows that ever changed are read together with the head",
        "test_rows_that_are_read_while_the_store_goes_back_are_the_newest",
        without("_brought_up_to_date", "found.changed"),
    ),
    mutant(
        "a compact leaves the age limit where it is",
        "test_a_compact_does_not_put_off_the_age_limit",
        never("swap_commit.new_generation", "compacted"),
    ),
    mutant(
        "who drops a refresh result has read the log on",
        "test_a_result_is_dropped_only_by_who_knows_every_commit",
        without("BatchProcessor._drop", "self._follower.read_on(group.model_id)"),
    ),
    mutant(
        "who drops a refresh result has the newest state",
        "test_a_result_is_dropped_only_by_who_knows_every_commit",
        never("BatchProcessor._drop", "followed"),
    ),
    mutant(
        "the digest of values that are read again",
        "test_values_are_read_again_only_where_they_are_the_same",
        without("change_requests.read_changes", "change.digest"),
    ),
    mutant(
        "one expired value loses no other",
        "test_values_that_lie_close_together_are_read_together",
        always("_records_at", "len(offsets)"),
    ),
    mutant(
        "rows that the same fold has written",
        "test_a_store_that_goes_back_is_brought_to_what_the_log_says",
        without("Replay._brought_in", "records.update(written.records)"),
    ),
    mutant(
        "no values in dead letters",
        "test_what_cannot_be_read_leaves_its_digest_in_dead_letters_and_no_value",
        put(
            "dead_letters.dead_letter", "value, headers = (digest_of(record).encode(), ())", "pass"
        ),
    ),
    # -- change data capture
    mutant(
        "acknowledged requests before a position of captured changes moves",
        "test_a_worker_that_dies_at_any_step_loses_and_doubles_nothing",
        put(
            "IntakeWorker._process",
            "self._send(translated)",
            "self._advance({record.partition for record in records})\nself._send(translated)",
        ),
    ),
    mutant(
        "rows under their new ids before they go under the old ones",
        "test_a_worker_that_dies_while_a_row_moves_moves_it_once",
        put(
            "IntakeWorker._send",
            "self._producer.publish(self._insertions((one for _, one in translated)))",
            "late = self._insertions((one for _, one in translated))",
        ),
        without("IntakeWorker._send", "self._at_step(IntakeStep.DELETE)"),
        put(
            "IntakeWorker._send",
            "self._producer.publish(messages)",
            "self._producer.publish(messages)\nself._at_step(IntakeStep.DELETE)\nself._producer.publish(late)",
        ),
    ),
    mutant(
        "a row that was erased does not come back with another key",
        "test_a_row_moves_to_its_new_key_but_an_erased_one_does_not_come_back",
        always("IntakeWorker._insertions", "each.former"),
    ),
    mutant(
        "values that Debezium invents name nobody",
        "test_what_the_connector_invented_never_names_a_subject",
        put("_former_name", "change.before.get(name) in _ZEROS[columns[name]]", "False"),
    ),
    # -- erasures
    mutant(
        "an erasure: of two words on a subject the later request counts",
        "test_a_lift_that_is_written_late_leaves_a_later_erasure_on_the_list",
        text(
            "log_view.lua",
            "return here ~= there or tonumber(at) >= tonumber(before)",
            "return true",
        ),
    ),
    mutant(
        "an erasure: models that have come to know the subject are asked",
        "test_rows_inserted_on_their_way_are_found_when_the_index_is_read_again",
        without("ErasureWorker._ask_again", "self._sender.ask"),
    ),
    mutant(
        "an erasure: a registration leaves out who is on the list",
        SIMULATION,
        put("Registrar._registered", "data.without_subjects(self._erased(config, data))", "data"),
        without("Registrar._onto", "self._erased_rows(candidate)"),
    ),
    mutant(
        "an erasure: the store must have every commit of the log",
        "test_nobody_is_gone_while_the_store_lacks_a_model_that_the_log_has",
        put(
            "Unsearched.news",
            "before.has(erasure.commits) and applied.has(erasure.commits)",
            "True",
        ),
    ),
    mutant(
        "an erasure: the store had every commit before its models were read",
        "test_models_that_were_read_before_the_store_had_them_again_are_not_believed",
        put(
            "Unsearched.news",
            "before.has(erasure.commits) and applied.has(erasure.commits)",
            "applied.has(erasure.commits)",
        ),
    ),
    mutant(
        "an erasure: the first final receipt counts",
        "test_if_models_came_meanwhile_the_first_final_receipt_counts",
        text(
            "log_view.lua", "if not is_kept(redis.call('HGET', VIEW, field)) then", "if true then"
        ),
    ),
    mutant(
        "an erasure: a receipt that no trusted key signed is none",
        "test_a_forged_combined_receipt_does_not_keep_an_erasure_from_being_done",
        never("PublishedReceipts._receipt", "not is_believed"),
    ),
    mutant(
        "an erasure: processes with trusted keys have a view of receipts of their own",
        "test_a_repeat_is_answered_from_what_processes_with_keys_have_read",
        put(
            "PublishedReceipts.__init__",
            "(SIGNED_ERASURE_RECEIPTS, 'signed-receipts')",
            "(ERASURE_RECEIPTS, 'receipts')",
        ),
    ),
    mutant(
        "the index: what no trusted key signed is left out",
        "test_a_forged_receipt_of_a_request_is_shown_by_nobody",
        put("Feed._add", "is_believed(record, self._trusted)", "True"),
    ),
    mutant(
        "an erasure: a registration of other people answers what was deferred",
        "test_a_deferred_request_is_of_its_namespace_when_its_model_is_replaced",
        put(
            "requests_of_other_namespaces", "not config.has_subjects_of(request.namespace)", "False"
        ),
    ),
    mutant(
        "an erasure: over HTTP, a receipt is compared with the subject",
        "test_what_an_id_stands_for_outlives_the_server_and_the_log",
        put("Outcomes.answers_other", "receipt.subject_commitment not in commitments", "False"),
    ),
    mutant(
        "an erasure: a model that forgot whose rows it has is not covered",
        "test_a_model_that_forgets_whose_rows_it_has_before_it_answers_is_not_covered",
        without("ErasureWorker._finish", "note_not_covered(done, models)"),
    ),
    mutant(
        "an erasure: a request is about subjects of its own namespace",
        "test_a_person_of_another_namespace_keeps_the_rows_of_a_model_that_was_replaced",
        put("_Decider._deletion", "state.meta.config.has_subjects_of(request.namespace)", "True"),
    ),
    mutant(
        "an erasure: over HTTP, the id of another person's is a conflict",
        "test_an_id_with_another_subject_is_a_conflict_on_another_server_too",
        never("api.sending.send", "_is_taken"),
    ),
    # -- preprocessing inside a model
    mutant(
        "no column is computed from what a step has learnt",
        "test_what_cannot_be_computed_before_the_statistics_is_refused",
        never("flow._unlearnt", "learnt"),
    ),
    mutant(
        "after a scaler nothing is filled in but what it makes 0",
        "test_what_no_column_has_is_refused_by_name",
        never("pipelines._scaler_first", "number != 0 or standardise not in _CENTRES"),
    ),
    mutant(
        "a scaler before an imputer learns from known values alone",
        "test_a_pipeline_that_scales_first_forgets_rows",
        put("live_statistics", "layout.scaler_first & (known > 0)", "known < 0"),
    ),
    mutant(
        "the auditor's scaler before an imputer learns from known values alone",
        "preprocess/test_scaler_first.py::test_so_it_is_with_order_statistics",
        put("_Learnt.scaling", "column.scaler_first and self.known[place]", "False"),
    ),
    mutant(
        "a function has the same bits on every machine",
        "test_a_function_is_correctly_rounded_and_so_the_same_on_every_machine",
        never("evaluating._applied", "rounded is not None"),
    ),
    mutant(
        "a periodic spline comes in again where its period ends",
        "test_a_spline_is_that_of_scipy",
        never("evaluating._spline", "of.place < of.degree"),
    ),
    mutant(
        "knots and scales that are learnt are not stateless",
        "test_of_what_is_kept_the_steps_that_need_no_fit_are_stateless",
        never("stateless.computing", "named is not None"),
    ),
    mutant(
        "a target that the function has no value of is refused",
        "test_what_has_no_such_function_is_refused_in_a_line_and_nothing_changes",
        never("targets.learnt", "len(bad)"),
    ),
    mutant(
        "what takes predictions back is the inverse of what is learnt",
        "test_what_does_something_else_to_its_target_is_refused_by_name",
        put("parameters._is_inverse", "function_name(inverse) == known", "True"),
    ),
    mutant(
        "the service does not learn a target in place of its logarithm",
        "test_what_cannot_be_registered_is_refused_in_one_line",
        never("fitted_estimator._check_served", "terms.target is not None"),
    ),
    mutant(
        "the intercept of liblinear is penalised",
        "test_liblinear_penalises_the_intercept_and_so_does_the_model",
        never("importing.from_sklearn", "given.penalise_intercept"),
    ),
    mutant(
        "the service registers no model whose intercept is penalised",
        "test_what_cannot_be_registered_is_refused_in_one_line",
        never("fitted_estimator._check_served", "terms.penalise_intercept"),
    ),
    mutant(
        "a function has a value for each row",
        "test_a_function_beside_its_domain_is_refused_by_row_and_nothing_changes",
        never("table._computed", "bad.any()"),
    ),
    mutant(
        "new rows have the table's columns and not those that are computed",
        "preprocess/test_computed_columns.py::test_every_change_leaves_the_refitted_pipeline",
        put("changed_rows.table_of", "given_columns(columns)", "columns"),
    ),
    mutant(
        "statistics that follow a commit",
        SIMULATION,
        put("LivePipeline.after", "replace(self, answer=answer)", "self"),
    ),
    mutant(
        "the rows of a commit leave the sums when it is folded",
        "test_a_store_that_goes_back_is_brought_to_what_the_log_says",
        put(
            "live.change_model",
            "pipeline.sums_after(generation, moved)",
            "pipeline.answer.sums",
        ),
    ),
    mutant(
        "the bound of a logistic pipeline counts the remainder",
        "test_the_bound_holds_and_is_of_use_over_a_stream",
        without("logistic_bound", "moved.remainder"),
    ),
    mutant(
        "what cancels in the error of a count is counted in its rounding",
        "test_a_count_and_its_mean_cancel_and_what_they_are_relative_to_is_kept",
        put("cancelled_in_errors", "kind is not Kind.POISSON", "True"),
    ),
    mutant(
        "the bound of several classes is that of all of them",
        "test_it_is_a_model_of_each_class_against_the_rest",
        put("_over_blocks", "range(generation.blocks)", "range(1)"),
    ),
    mutant(
        "counts of a pipeline are 0 or more",
        "test_a_count_below_0_is_refused_at_registration_and_in_a_request",
        never("candidate._fit_pipeline", "config.kind is Kind.POISSON"),
    ),
    mutant(
        "counts that are sent to a pipeline are 0 or more",
        "test_a_count_below_0_is_refused_at_registration_and_in_a_request",
        put("changed_rows._encoded_targets", "(counts < 0).any()", "False"),
    ),
    mutant(
        "a softmax pipeline is refused in the service",
        "test_what_there_is_not_is_refused_by_name",
        never("check_served", "kind is Kind.SOFTMAX"),
    ),
    mutant(
        "an order statistic that has left its window is not guessed",
        "test_a_median_that_is_left_is_said_to_be",
        never("Window.at", "not (rank >= self.below and place < len(self.values))"),
    ),
    mutant(
        "missing values that are filled in have their rank",
        "test_a_window_gives_the_quantiles_of_what_came_and_went",
        put("Window.at", "rank >= less", "True"),
    ),
    mutant(
        "the most frequent of more values than are counted is refused",
        "test_the_most_frequent_of_too_many_values_is_refused",
        never("Order.narrowed", "count > MOST_VALUES"),
    ),
    mutant(
        "a window in the store is one of its interval",
        "test_damaged_values_are_corrupt",
        put("_unpack_window", "(np.diff(values) <= 0).any()", "False"),
    ),
    mutant(
        "another most frequent category asks for a rebuild",
        "test_what_stands_in_for_a_missing_category_follows_the_live_rows",
        never("statistics._check_categories", "(found.mode != base.mode).any()"),
    ),
    mutant(
        "a linear model with order statistics has no exact sums",
        "test_exact_sums_are_refused",
        without(
            "checks.can_have_exact_sums",
            "not any((keeps_order(column) for column in columns_of(config.preprocess).values()))",
        ),
    ),
    mutant(
        "rows that came and went since the sums were written are counted",
        "test_sums_come_back_with_the_rows_since",
        put("_with_rows_since", "(1, -1)", "(1,)"),
    ),
    mutant(
        "what is solved with the factor of a compact has that factor's error",
        "test_the_factor_of_a_compact_is_as_wrong_as_it_was_measured",
        put(
            "refreshes.compact",
            "Generation(number, objective, theta_b, smallest, largest, off, off_by_factor)",
            "Generation(number, objective, theta_b, smallest, largest, off)",
        ),
    ),
    mutant(
        "sums that were written whole are not those that a worker knew",
        "preprocess/test_fold.py::test_deleted_rows_beside_the_sums_are_removed_within_the_hour",
        text("store.sums", "redis.call('HSET', HEAD, 'arrays', ARGV[2])"),
    ),
    mutant(
        "a category whose last row has gone is unknown",
        "test_a_category_that_vanishes_is_unknown_and_its_weight_0",
        put("fitted_columns._one_hot", "_without_rows(there)", "()"),
    ),
    mutant(
        "a category whose last row has gone has the weight 0",
        "test_a_category_that_vanishes_is_unknown_and_its_weight_0",
        without("published_parameters", "len(base.constant)"),
    ),
    mutant(
        "what is scaled alone is published without its mean subtracted",
        "test_a_pipeline_with_half_a_scaler_forgets_as_its_refit_would",
        put(
            "_standardised",
            "np.where(base.layout.centred, mean, -base.centre / base.scale)",
            "mean",
        ),
    ),
    mutant(
        "a column whose features are divided by deviations has no balanced directions",
        "test_balanced_directions_are_those_of_equal_penalties",
        put("extents._balanced", "scales(hot.column.standardise)", "False"),
    ),
    mutant(
        "a model is rebuilt once the category that is left out has lost its last row",
        "test_which_category_is_left_out_follows_the_live_rows",
        without("live_statistics", "_check_categories(base, found)"),
    ),
    mutant(
        "a model is rebuilt once a category has become rare",
        "test_which_categories_are_rare_follows_the_live_rows",
        put("statistics._check_categories", "found.rare != base.rare", "False"),
    ),
    mutant(
        "a category without a row asks for no rebuild",
        "test_a_category_without_a_row_is_neither_rare_nor_frequent",
        put("statistics._check_categories", "found.rows > 0", "found.rows >= 0"),
    ),
    mutant(
        "a row of a file without a place in the model is left out before the others are sent",
        "test_a_row_without_a_place_is_named_and_the_others_are_sent",
        put("_without_place", "(type(value), value) not in known", "False"),
    ),
    mutant(
        "the error of V is in the bound of the inverse",
        "test_a_typing_error_that_is_righted_leaves_no_false_bound",
        put("rounded_sum", "2.0 * off * magnified_by", "0.0"),
    ),
    mutant(
        "no refresh but a rebuild helps once V has lost its digits",
        "test_a_stream_that_has_lost_its_digits_is_rebuilt",
        never("used_up", "facts.lost"),
    ),
    mutant(
        "the rows have a second opinion of the Hessian's smallest eigenvalue",
        "test_it_finds_what_v_has_lost",
        never("Drift.fault", "self.claimed"),
        put("_audit_block", "opinion.distance(smallest)", "0.0"),
        never("Drift.fault", "self.inverse"),
    ),
    mutant(
        "a failed drift audit is said at once",
        "test_a_damaged_row_of_v_orders_a_rebuild_that_says_why",
        without("small_refresh", "result.drifted"),
    ),
    mutant(
        "a rounded centre moves a penalised intercept",
        "test_a_softmax_model_has_it_too",
        always("softmax._off_centre", "weight == 0.0"),
    ),
    mutant(
        "the intercept that is penalised is the pipeline's, with the means in it",
        "test_means_that_move_far_are_followed_by_steps_of_the_generation",
        never("Movement.product", "self.held.penalty"),
    ),
    mutant(
        "means that have moved take something away from a bound of the Hessian",
        "test_a_root_of_the_hessian_has_moved_by_no_more_than_is_said",
        put("hessian_moved", "moved.held.apart", "0.0"),
    ),
    mutant(
        "a column of one value that is not 0 has a weight beside a penalised intercept",
        "test_a_column_without_a_value_left_shares_in_the_intercept_where_it_is_not_0",
        put("_is_moved", "standardise[0] != 0", "False"),
    ),
    mutant(
        "an imputed mean rounds a quartile",
        "test_a_mean_that_is_a_quartile_up_to_rounding_has_a_bound_above_the_truth",
        put("order.Filled.size_among", "self.times and near", "False"),
    ),
    mutant(
        "exact sums penalise the pipeline's intercept, with the means in it",
        "test_every_kind_of_column_with_a_penalised_intercept",
        put("minimiser._Equations._penalties", "live.centred[j]", "False"),
    ),
    mutant(
        "a change of a library model is adopted once it is whole",
        "test_an_operation_that_fails_at_any_call_changes_nothing",
        put("ChangingModel.delete", "before.draft()", "before"),
    ),
    mutant(
        "changes of a library model take turns",
        "test_changes_from_four_threads_leave_what_one_thread_would",
        put("ChangingModel.delete", "self._lock", "__import__('contextlib').nullcontext()"),
    ),
    # -- exact sums, and the rounded minimiser
    mutant(
        "the distance to the solution counts in what it rounds to",
        "test_what_is_rounded_is_rounded_the_same_anywhere_within_the_distance",
        put("_round", "2.0 * distance", "0.0 * distance"),
    ),
    mutant(
        "a tie is not proved",
        "test_what_is_as_near_to_a_tie_as_the_bound_is_not_proved",
        put("_round", "2.0 * distance + 4.0 * NEAREST * np.abs(low)", "2.0 * distance"),
    ),
    mutant(
        "what vanishes beside a larger coefficient is not proved",
        "test_what_vanishes_beside_another_number_is_not_proved",
        put("_round", "proved & (enough | ~y.places.any(axis=0))", "proved"),
    ),
    mutant(
        "a residual whose squares vanish counts",
        "test_coefficients_of_one_target_may_be_of_any_size",
        put("exact.rounding", "_VANISHED = 1e-150", "_VANISHED = 0.0"),
    ),
    mutant(
        "a subnormal coefficient is not rounded twice",
        "test_subnormal_coefficients_are_rounded_once",
        always("settled", "point.nearest.T"),
    ),
    mutant(
        "rounding counts in the proof that a matrix is definite",
        "test_a_matrix_that_only_rounding_makes_definite_is_not_proved",
        put("Inverse.of", "4.0 * unsure", "0.0"),
    ),
    mutant(
        "what is wrong with the inverse counts in the leverage, squared",
        "test_the_bound_of_leverage_holds_for_an_inverse_that_is_wrong",
        put(
            "_leverage",
            "max(float(known), 0.0) + off * off / inverse.smallest",
            "max(float(known), 0.0)",
        ),
    ),
    mutant(
        "what is wrong with the inverse counts in the leverage",
        "test_the_bound_of_leverage_holds_for_an_inverse_that_is_wrong",
        put("_leverage", "root.T @ V + V.T @ S", "root.T @ V"),
    ),
    mutant(
        "how the matrix was rounded counts in the leverage",
        "test_the_bound_of_leverage_counts_how_the_matrix_was_rounded",
        put("_leverage", "(8.0 * (d + MOST) * EPS + 4.0 * NEAREST) * inverse.size * size", "0.0"),
    ),
    mutant(
        "rows that leave lower the bound of the smallest eigenvalue",
        "test_the_smallest_eigenvalue_is_never_below_its_bound",
        put("running._updated", "inverse.smallest * (1.0 - leverage)", "inverse.smallest"),
    ),
    mutant(
        "a column that was absent is not any more",
        "test_the_first_value_of_a_column_arrives",
        put("Warm.changed", "absent.any()", "False"),
    ),
    mutant(
        "a copy has no row that left",
        "test_no_row_that_left_is_in_a_copy",
        put("Solution.__reduce__", "self.live_sums", "self.sums"),
    ),
    mutant(
        "float64 adds up no more products than it has room for",
        "test_the_pull_is_exact_with_more_features_than_float64_adds_up",
        put("ChangedRows._errors", "range(0, d, SUMMED)", "range(0, d, d)"),
        put("ChangedRows._errors", "start + SUMMED", "start + d"),
    ),
    mutant(
        "what is not proved is not called rounded",
        "test_what_nothing_has_proved_is_not_called_rounded",
        put("is_rounded", "stream.solution.minimiser.rounded", "True"),
    ),
    mutant(
        "an interrupted registration removes what it has staged",
        "test_a_registration_that_is_interrupted_while_it_stages_leaves_nothing_behind",
        without("stage_fit", "discard(store, config, where, dataset)"),
    ),
    mutant(
        "what a registration has staged to the end does not expire",
        "test_what_a_registration_has_staged_to_the_end_does_not_expire",
        without("mark_complete", "pipeline.persist(key)"),
    ),
    mutant(
        "the sweep spares the data set of a live model",
        "test_what_a_registration_that_was_cut_short_made_live_is_not_swept",
        put("sweep_registrations", "(*live.generations, *live.datasets)", "live.generations"),
    ),
    mutant(
        "keys of a rebuild that the store has lost expire",
        "test_the_keys_of_a_swap_that_the_store_lost_with_its_rows_expire",
        put(
            "shred.shred",
            "(staged.generation, *_generations(staged.former))",
            "_generations(staged.former)",
        ),
    ),
    mutant(
        "a refresh that was lost with its topic is ordered again",
        "test_a_rebuild_that_was_lost_with_its_topic_is_done_again",
        put("TopicRecovery.run", "[*rest, *self._pending_jobs(plan.topic)]", "rest"),
    ),
    mutant(
        "a refresh that runs holds its place in the log",
        "test_a_long_rebuild_delays_neither_a_polish_nor_a_deletion",
        put("JobQueue.first", "(*self._waiting, *self.running)", "self._waiting"),
    ),
    mutant(
        "a refresh that runs, or is done, is not begun when it is read again",
        "test_a_long_rebuild_delays_neither_a_polish_nor_a_deletion",
        put("JobQueue.add", "self._finished | {job.name for job in self.running}", "set[object]()"),
    ),
    mutant(
        "a finished refresh whose watermark could not be stored does not wait for ever",
        "test_the_watermark_of_a_finished_job_is_stored_later_if_it_cannot_be_at_once",
        without("RefreshWorker._process", "self._move_past(finished)"),
    ),
    mutant(
        "of one model one refresh runs at a time",
        "test_of_one_model_one_job_runs_at_a_time",
        put("JobQueue.take", "{job.model for job in self.running}", "set[str]()"),
    ),
    mutant(
        "a refresh that another worker does is put off",
        "test_a_model_whose_refresh_another_worker_does_is_put_off",
        put("RefreshWorker._begin", "job.model in self._lease.running_elsewhere()", "False"),
    ),
    mutant(
        "a refresh that needs more memory than there is fails",
        "test_a_job_beyond_the_memory_fails_with_a_line_and_others_are_done",
        put("RefreshWorker._begin", "self._too_large(job)", "None"),
    ),
    mutant(
        "a refresh that is broken off after its result is read again",
        "test_a_job_that_a_server_breaks_off_at_any_step_is_done",
        without("RefreshWorker._end", "self._queue.release(job)"),
    ),
    mutant(
        "an erasure counts once at each place of the log",
        "test_an_erasure_that_is_sent_again_behind_its_lift_puts_the_subject_back",
        put(
            "Suppressions.suppressing",
            "change.stored in self._view.get(marks).values()",
            "subject_id in self.of(namespace, [subject_id])",
        ),
    ),
    mutant(
        "the digest below the apply cursor moves past a void record",
        "test_a_void_record_at_the_end_is_no_lost_one_for_who_comes_next",
        never("PartitionFold._finish", "tail.offset"),
    ),
    # -- exact sums in a store
    mutant(
        "rows that moved after sums were made whole lie beside them",
        "test_what_steps_write_is_what_is_read_whole_or_beside",
        put(
            "new_fields",
            "0 if whole else len(before.kept.since)",
            "len(after.kept.since) if whole else len(before.kept.since)",
        ),
    ),
    mutant(
        "rows that whole sums include do not stay beside them",
        "test_rows_beside_the_sums_are_never_many",
        without("apply.lua", "manifest.clear_sums"),
    ),
    mutant(
        "stored sums must give the parameters of the head",
        "test_damaged_sums_halt_the_model_by_one_line",
        never("read_solution", "theta is not None"),
    ),
    mutant(
        "a rebuild says that the sums were damaged",
        "test_sums_or_rows_that_were_damaged_are_found_digit_for_digit",
        always("_compared", "fault"),
    ),
    mutant(
        "a worker that ends leaves no row beside sums",
        "test_a_worker_that_ends_leaves_no_row_beside_the_sums",
        put("DeletionWorker.close", "filter(has_rows_beside, self._states)", "()"),
    ),
    mutant(
        "a library model remembers no row that it has deleted",
        "test_sums_that_no_store_keeps_remember_no_row",
        without("Solution.changed", "return solution"),
        put(
            "Solution.changed",
            "self.kept.joined(moved)",
            "(self.kept or Kept(self.live_sums)).joined(moved)",
        ),
        put("Solution.changed", "self.kept.most", "(self.kept or Kept(self.live_sums)).most"),
    ),
    mutant(
        "no row lies beside exact sums where rows are encrypted",
        "test_no_row_lies_beside_exact_sums",
        never("with_solution", "encrypted"),
    ),
    # -- pipelines with exact sums
    mutant(
        "a pipeline's statistics have no weights",
        "test_weights_enter_the_last_step_alone_also_those_that_come_later",
        never("solution._after", "plain is None"),
    ),
    mutant(
        "a pipeline's parameter is known once both ends of its ball round alike",
        "test_a_parameter_of_0_is_0",
        always("minimiser._rounded", "all()"),
    ),
    mutant(
        "a store has the sums without weights of a pipeline, too",
        "test_a_pipeline_is_read_as_it_was_written_whole_or_beside",
        always("packed_whole", "kept.plain"),
    ),
    mutant(
        "an audit compares the sums without weights of a pipeline, too",
        "test_an_audit_finds_damaged_sums_of_either_kind",
        put(
            "PipelineSolution.is_of",
            "(self.plain or self.sums).equal(plain)",
            "True",
        ),
    ),
    # -- rows in files
    mutant(
        "a file of rows has the content that its name says",
        "test_a_damaged_file_halts_its_model_alone_until_it_is_back",
        always("read_file", "digest_of(data) == name"),
    ),
    mutant(
        "passes: a worker of another version computes nothing",
        "test_a_worker_of_another_version_computes_nothing",
        never("Pass.__call__", "installed != self.version"),
    ),
    mutant(
        "passes: files that are gone are not laid to the workers",
        "test_workers_that_do_not_see_the_files_are_not_taken_for_lost_files",
        never("Buckets._by", "not self.files().issubset(self._files.names())"),
    ),
    mutant(
        "what a column of a frozen transformer holds follows from all blocks",
        "test_a_block_without_a_category_is_of_the_type_that_the_others_are",
        put("FrozenFile.frame", "name not in numeric", "False"),
    ),
    mutant(
        "numbers and truth values in one column of a frozen transformer, in several blocks",
        "test_a_column_that_is_wrong_as_a_whole_is_wrong_in_blocks",
        never("FrozenFile.for_blocks", "spelled & truth"),
    ),
    mutant(
        "the ledger of a certified model is that of the fit to its files",
        "test_it_spends_what_a_model_spends_whose_rows_are_in_the_store",
        put("rebuild_in_files", "made.ledger", "state.meta.ledger"),
    ),
    mutant(
        "a fit to files that leaves the certificate no budget is refused",
        "test_terms_that_no_fit_can_keep_are_refused_and_leave_no_file",
        without(
            "stage_in_files",
            "check_first(config, fit.ledger, fit.generation, fit.stream, fit.factor)",
        ),
    ),
    mutant(
        "the reach of a certified model is that of every row in its files",
        "test_it_spends_what_a_model_spends_whose_rows_are_in_the_store",
        put("certified._begun", "max(reach, part.reach)", "part.reach"),
    ),
    mutant(
        "a row that a rebuild deletes is priced as files have it",
        "test_a_row_that_waits_for_a_rebuild_is_priced_when_that_deletes_it",
        put(
            "_Swap._disclosing",
            "self.store.records_of(state, commit.erased)",
            "self.store.records_if_there(state.generation_keys, commit.erased)",
        ),
    ),
    mutant(
        "distances are measured in all rows of files",
        "test_distances_are_measured_in_the_same_wherever_the_rows_are",
        put("disclosure.begin_scale_in_passes", "sum(numbers)", "max(numbers)"),
    ),
    mutant(
        "the scale is without rows that were deleted while the model was registered",
        "test_the_scale_forgets_rows_that_were_deleted_while_the_model_was_registered",
        put("successor_of", "leaving is not None", "False"),
    ),
    mutant(
        "files that a refresh leaves behind are removed",
        "test_a_refresh_writes_files_without_what_was_deleted",
        without("shred.shred", "remove_former(commit.meta, name, store.row_keys)"),
    ),
    mutant(
        "a refresh erases every row that was deleted since its files were written",
        "test_the_refresh_is_ordered_within_half_of_the_time_that_is_promised",
        put("rebuild_in_files", "before.version", "state.version"),
    ),
    mutant(
        "a row that is deleted after the sums were read stays in the files that belong to them",
        "test_a_row_that_is_deleted_as_a_refresh_begins_leaves_the_sums_once",
        put(
            "rebuild_in_files",
            "store.deleted_after(state.keys, before.version, until=state.version)",
            "store.deleted_after(state.keys, before.version)",
        ),
    ),
    mutant(
        "what was deleted while a refresh wrote files is erased by another one in time",
        "test_the_refresh_is_ordered_within_half_of_the_time_that_is_promised",
        put("_changed_since", "caught_up.same and not result.caught_up", "True"),
    ),
    mutant(
        "a refit has the rows that were deleted since its version",
        "test_rows_that_are_deleted_while_it_reads_are_those_of_its_version",
        without("_InFiles.of", "until"),
    ),
    mutant(
        "files that lack rows of the version are not refitted",
        "test_parameters_that_are_of_other_rows_are_noticed",
        never("_InFiles._check", "found != len(self)"),
    ),
    mutant(
        "a refit begins again once a refresh has removed its files",
        "test_it_begins_again_if_a_refresh_removes_its_files",
        always("read_live_rows", "tries == _TRIES"),
    ),
    mutant(
        "files that may still become live stay",
        "test_files_of_a_refresh_that_never_became_live_are_removed",
        put(
            "Buckets.remove_orphans",
            "self._files.names(older_than=older_than)",
            "self._files.names()",
        ),
    ),
    mutant(
        "a fold does without the files that a later commit has replaced",
        "test_a_store_that_goes_back_past_a_refresh_does_without_the_former_files",
        put("Replay.row_records", "RowsMissing", "ZeroDivisionError"),
    ),
    mutant(
        "a model without rows reads no file",
        "test_nothing_is_left_of_the_files_of_a_model_that_ends",
        put("without_files", "{'rows': 0, 'in_store': 0}", "{}"),
    ),
    mutant(
        "files tell whose rows they had",
        "test_whose_rows_were_deleted_is_known_once_the_files_are_without_them",
        put("Buckets.rewritten", "any(map(len, gone))", "False"),
    ),
    mutant(
        "a row of the store that is lost is missed, though files have a former one",
        "test_rows_of_the_store_that_are_lost_are_missed",
        put("Meta.rows_in_store", "self.row_files.in_store", "0"),
    ),
    mutant(
        "a generation catches up with rows in the files that it has itself",
        "test_what_changes_while_files_are_written_stays_in_the_store",
        put("_Swap._up_to_date", "self.result.row_files", "state.meta.row_files"),
    ),
    mutant(
        "files that are written anew keep no row as it was before it was corrected",
        "test_a_refresh_moves_rows_of_the_store_into_the_files",
        put("rebuild_in_files", "{*named, *deleted, *touched.changed}", "{*named, *deleted}"),
    ),
    mutant(
        "inserted rows are found by their subject once they are in the files",
        "test_inserted_rows_are_found_by_their_subject_wherever_they_are",
        put("refresh.in_files._in_order", "[owners.get(row) for row in ids]", "None"),
    ),
    mutant(
        "a deleted row is no sentinel, though the generation has a copy of it",
        "test_a_deleted_sentinel_is_not_one_of_the_state_that_is_read",
        put("ModelStore._sentinel_records", "row not in gone", "True"),
    ),
    mutant(
        "statistics in passes are taken about the mean",
        "test_columns_that_are_hard_are_taken_alike",
        put("fit_base_in_passes", "np.where(one, first.least, first.mean)", "0.0 * first.mean"),
    ),
    mutant(
        "rows of files have dual rows in the units of their generation's preprocessing",
        "test_a_generation_catches_up_with_rows_of_its_files",
        put(
            "catch_up._duals", "staged.pipeline", "store.load_model(meta.config.model_id).pipeline"
        ),
    ),
    mutant(
        "a row that comes to the store beside its file is counted",
        "test_mixed_requests_over_rebuilds_are_as_if_refitted",
        put("compute._brought_in", "_in_store(at, came_to_store)", "{}"),
    ),
    mutant(
        "dual rows of files are computed from the factor",
        "test_versions_are_those_of_a_model_whose_rows_are_in_the_store",
        put("RowFilesOfModels.records", "duals()(rows.X)", "W"),
    ),
    mutant(
        "what lost files knew of rows is not forgotten unasked",
        "test_a_model_whose_files_are_lost_is_registered_again",
        never("Registrar._members", "not accept"),
    ),
    mutant(
        "no digest of a bucket confirms a guess of a row that left it",
        "test_the_digest_of_a_bucket_confirms_no_guess_of_its_rows",
        put("pack_bucket", "secrets.token_hex(SALT_BYTES)", "''"),
    ),
    # -- rows in files, encrypted
    mutant(
        "keys of files are on disk once their root is known",
        "test_keys_that_were_lost_while_files_were_written_are_there_when_the_root_is_known",
        without("put_root", "files.settle()"),
    ),
    mutant(
        "a file that is written again keeps its key",
        "test_processes_that_write_the_same_file_write_it_under_one_key",
        put("RowKeys.of_files", "pipeline.hsetnx", "pipeline.hset"),
    ),
    mutant(
        "a file whose key another process made anew belongs to that one",
        "test_processes_that_write_the_same_file_write_it_under_one_key",
        put("RowKeys.keep_files", "self.of_files(where, keys) == keys", "True"),
    ),
    mutant(
        "the key of a file goes with it",
        "test_old_copies_of_files_cannot_be_read_once_a_refresh_has_written_them_anew",
        without("SealedFiles.delete", "self._keys.drop_files(self._where, ending)"),
    ),
    mutant(
        "the keys of files of a registration that failed go with them",
        "test_a_registration_that_fails_leaves_no_key",
        never("row_files.remove_all", "row_keys is not None"),
    ),
    mutant(
        "copies of sampled rows are encrypted",
        "test_copies_of_sampled_rows_are_encrypted_and_go_with_their_row",
        never("staging.stage_generation", "row_keys is not None and sentinels.records"),
    ),
    mutant(
        "no worker of a pass reads encrypted files",
        "test_no_other_process_reads_encrypted_files",
        never("RowFilesOfModels.__init__", "row_keys is not None"),
    ),
    # -- rows in files, with preprocessing
    mutant(
        "a category that only rows have that are left out is not named",
        "test_a_replacement_names_the_categories_that_are_left",
        put("Coding.finished", "at >= 0", "True"),
    ),
    mutant(
        "what the text of a column spells is said by all of its blocks",
        "test_rows_in_blocks_are_those_of_the_table",
        without("rows_in", "as_written"),
    ),
    mutant(
        "statistics of a rebuild from files have no weights",
        "test_weights_are_summed_apart",
        never("RunningRaw.add", "not _plain(rows)"),
    ),
    mutant(
        "a number may be missing in files of models with preprocessing alone",
        "test_a_number_that_is_missing_is_noticed_where_none_can_be",
        never("as_model_has", "np.isnan(rows.X).any()"),
    ),
    # -- a store on a cluster
    mutant(
        "what only the store has is on a replica before it counts",
        "test_what_only_the_store_has_does_not_count_before_a_replica_has_it",
        put("Barrier.sync", "bool(replicas.get(place))", "False"),
    ),
    mutant(
        "no rewrite of files counts while a node is away",
        "test_no_rewrite_counts_while_a_node_is_away",
        never("Cluster.every_address", "_AWAY"),
    ),
    mutant(
        "the answers of a cluster that is down do not count",
        "test_a_cluster_that_is_down_is_an_unavailable_store",
        never("ClusterPipeline._in_turn", "isinstance(answer, ClusterDownError)"),
    ),
    mutant(
        "a node of a cluster is not taken for a single server",
        "test_a_node_that_is_named_as_a_single_server",
        never("refuse_cluster_node", "enabled"),
    ),
    mutant(
        "a slot that has moved is remembered",
        "test_a_command_follows_its_key",
        without("Cluster.learn", "self._owners[error.slot_id] = address"),
    ),
)
