"""The two tiers: what `make test` leaves out, and `make test-all` (and CI) runs as well.

`make test` takes 4 to 7 minutes on 2 cores. It keeps every unit test; the battery on one model of
each kind and method; the main paths on a real Kafka and a real Valkey; the command's main job;
death at every step, one way each, on Redis Streams and in memory; 10 simulated seeds.
"""

from __future__ import annotations

THOROUGH = (
    "tests/studies/test_bench",
    "tests/studies/test_certificates.py::test_a_quick_run",
    "tests/studies/test_certificates.py::test_the_page",
    "tests/studies/test_contract.py::test_the_document",
    "tests/studies/test_http_load",
    "tests/studies/test_kernels",
    "tests/studies/test_many_models",
    "tests/studies/test_paper",
    "tests/studies/test_stream_study",
    "tests/proof/attacks/test_attacks.py::test_no_attack",
    "tests/proof/bundles/",
    "tests/proof/chaos/test_chaos.py::test_a_minute",
    "tests/proof/chaos/test_chaos.py::test_failovers_of_a_cluster",
    "tests/proof/conversions/",
    "tests/proof/exact/",
    "tests/proof/fuzz/",
    "tests/proof/http/",
    "tests/proof/model/",
    "tests/proof/pipelines/test_pipelines.py::test_a_pipeline_is_right",
    "tests/proof/simulation/test_simulation.py::test_no_seed_breaks",
    "tests/unit/engine/test_class_weights.py::test_five_thousand",
    "tests/unit/export/",
    "tests/unit/server/test_index.py::test_a_page_of_100_000",
    "tests/unit/server/test_index_people.py::test_100_000",
    "tests/unit/server/test_index_people.py::test_a_record_is_added_quickly_to_100_000",
    "tests/unit/scripts/test_supply_chain.py::test_the_bill_of_materials",
    "tests/integration/audit/test_verify_in_files.py::test_it_takes_a_fraction",
    "tests/integration/export/",
    "tests/integration/security/",
    "tests/integration/refresh/test_memory.py::test_a_rebuild_needs",
    "tests/integration/commits/test_crash.py::test_dying_at_every_named_step_in_every_way_loses_and_doubles_nothing[streams]",
    "tests/integration/commits/test_crash.py::test_dying_at_every_named_step_in_every_way_loses_and_doubles_nothing[streams-one-way",
    "tests/integration/commits/test_crash.py::test_a_cold_refresh_process",
    "tests/integration/commits/test_crash.py::test_the_store_is_killed",
    "tests/integration/commits/test_fold.py::test_walks",
    "tests/integration/commits/test_change_walks",
    "tests/integration/commits/test_exact_sums.py::test_each_version",
    "tests/integration/commits/test_records",
    "tests/integration/deletions/test_classes.py::test_52_batches",
    "tests/integration/deletions/test_classes.py::test_killed_at_every_step",
    "tests/integration/deletions/test_disclosure_refreshes",
    "tests/integration/deletions/test_row_changes.py::test_mixed_requests",
    "tests/integration/deletions/test_row_changes.py::test_thousands_of_mixed",
    "tests/integration/deploy/",
    "tests/integration/erasures/test_many_models",
    "tests/integration/erasures/test_walks",
    "tests/integration/log/test_battery.py::test_a_member_that_is_killed",
    "tests/integration/log/test_battery.py::test_a_poll_with_no_room",
    "tests/integration/log/test_battery.py::test_two_members_split",
    "tests/integration/log/test_failures",
    "tests/integration/log/test_repairs",
    "tests/integration/log/test_servers",
    "tests/integration/preprocess/test_deletions.py::test_after_every_deletion_it_is_the_refitted_pipeline[streams",
    "tests/integration/preprocess/test_deletions.py::test_after_every_deletion_it_is_the_refitted_pipeline[kafka-pru",
    "tests/integration/preprocess/test_computed_columns.py::test_no_graph",
    "tests/integration/preprocess/test_fold.py::test_every_refresh",
    "tests/integration/preprocess/test_frozen",
    "tests/integration/preprocess/test_one_hot.py::test_what_is_published",
    "tests/integration/preprocess/test_order.py::test_what_is_published",
    "tests/integration/preprocess/test_scaler_first.py::test_what_is_published",
    "tests/integration/preprocess/test_packed_files",
    "tests/integration/preprocess/test_row_changes.py::test_inserted_corrected_and_deleted_rows_leave_the_refitted_pipeline[streams",
    "tests/integration/preprocess/test_row_changes.py::test_inserted_corrected_and_deleted_rows_leave_the_refitted_pipeline[kafka-pru",
    "tests/integration/preprocess/test_row_changes.py::test_thousands",
    "tests/integration/passes/",
    "tests/integration/refresh/test_parallel.py::test_two_workers",
    "tests/integration/refresh/test_races",
    "tests/integration/refresh/test_refresh.py::test_52_batches",
    "tests/integration/refresh/test_refresh.py::test_linear_stays_at_retraining",
    "tests/integration/refresh/test_refresh.py::test_logistic_keeps_its_bounds",
    "tests/integration/refresh/test_stuck.py::test_a_log_that_is_slow",
    "tests/integration/audit/",
    "tests/integration/registration/test_certified_in_files",
    "tests/integration/registration/test_encrypted_files",
    "tests/integration/registration/test_from_estimator.py::test_a_fitted_pipeline_is_registered_by_one_line_and_forgets[csv",
    "tests/integration/registration/test_from_estimator.py::test_a_ridge_classifier",
    "tests/integration/registration/test_generalised_bounds",
    "tests/integration/registration/test_kinds.py::test_versions",
    "tests/integration/registration/test_logistic_in_files",
    "tests/integration/registration/test_pipelines_in_files",
    "tests/integration/registration/test_preprocessing_in_files",
    "tests/integration/server/test_console.py::test_a_form",
    "tests/integration/server/test_console.py::test_every",
    "tests/integration/server/test_console.py::test_pages",
    "tests/integration/server/test_console.py::test_with",
    "tests/integration/server/test_console.py::test_a_session",
    "tests/integration/server/test_console.py::test_a_row",
    "tests/integration/server/test_console_erasures.py::test_a_key",
    "tests/integration/server/test_console_erasures.py::test_the_page_of_a_person",
    "tests/integration/server/test_console_erasures.py::test_a_day",
    "tests/integration/server/test_deletions.py::test_a_body_that",
    "tests/integration/server/test_erasures",
    "tests/integration/server/test_index",
    "tests/integration/server/test_models",
    "tests/integration/server/test_streams",
    "tests/integration/telemetry/",
    "tests/integration/store/test_embedded_valkey.py::test_a_server_that_lingers",
    "tests/integration/store/test_embedded_valkey.py::test_a_server_whose_directory",
    "tests/integration/store/test_embedded_valkey.py::test_a_client_that_stays",
    "tests/integration/store/test_corruption.py::test_no_damage",
    "tests/integration/store/test_cluster_moves",
    "tests/integration/store/test_erased_data",
    "tests/integration/store/test_rewrite",
    "tests/integration/subscriber/test_subscriber.py::test_a_kafka_that_is_not_there",
)

PROPERTIES = "tests/proof/properties/"
BATTERY = (
    *(
        f"[{method}-{kind}-benign-"
        for method in ("exact", "pru", "influence")
        for kind in ("linear", "logistic", "poisson")
    ),
    "test_softmax.py::test_exact_is_the_newton_step_whatever_the_batches_and_the_order[benign]",
    "test_softmax.py::test_inserting_and_deleting_depend_on_what_is_live_alone[benign]",
    "test_every_method_of_the_engine",
)
"""Of the properties: the battery on one model of each kind and method."""

ACCEPTANCE = "tests/acceptance/"
MAIN_JOB = (
    "test_cli_main_job",
    "test_install",
    "test_docs_site",
    "test_typed.py::test_the_commands_of_a_page_print_what_it_says[README.md]",
    "test_typed.py::test_a_command_that_prints",
)
"""Of the tests of commands: the main job, and what a newcomer meets."""

EVENTS = "tests/integration/commits/test_events.py"
IN_BRIEF = (
    "[linear]",
    "-linear]",
    "[changes]",
    "lose_and_double_nothing[sums]",
    "-changes]",
    "what_the_log_says[sums]",
    "folded_again[sums]",
    "what_the_log_says[pipeline]",
    "what_the_log_says[certified]",
    "folded_again[pipeline]",
)
"""Of the events: rows, row changes, exact sums; of pipelines and certified models, folds."""

INTEGRATION = "tests/integration/"
ON_KAFKA = (
    "deletions/test_requests.py::test_forms_and_repeats",
    "deletions/test_requests.py::test_bad_requests",
    "log/test_battery.py",
    "subscriber/test_subscriber_kafka.py::test_a_stranger_sends_requests_and_reads_what_retraining_gives[linear]",
)
"""Of the tests on a real Kafka: the main paths."""


def is_thorough(nodeid: str, *, kafka: bool) -> bool:
    """Return whether a test is in the second tier only; ``kafka``: it needs a real Kafka."""
    if kafka and nodeid.startswith(INTEGRATION):
        return nodeid.startswith(THOROUGH) or not any(path in nodeid for path in ON_KAFKA)
    if nodeid.startswith(EVENTS):
        return not any(part in nodeid for part in IN_BRIEF)
    if nodeid.startswith(PROPERTIES):
        return not any(part in nodeid for part in BATTERY)
    if nodeid.startswith(ACCEPTANCE):
        return kafka or not any(part in nodeid for part in MAIN_JOB)
    return nodeid.startswith(THOROUGH) or kafka
