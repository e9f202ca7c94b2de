//! The kit on stores with a planted fault. The cases that must notice a fault do so, and so does a differential run.
//!
//! A test that cannot fail proves nothing. These faults occur in real stores: a forgotten precondition, an accepted
//! stale fence, half a batch, a boundary that is off by one tick.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod faulty;

use std::panic::{AssertUnwindSafe, catch_unwind};

use faulty::{Fault, Faulty};
use tidelock_tck::{CASES, differential, run_case};

/// Returns whether the case fails on a store with the fault.
fn notices(case: &str, fault: Fault) -> bool {
    assert!(CASES.iter().any(|known| known.name == case), "there is no case {case}");
    catch_unwind(AssertUnwindSafe(|| run_case(case, Box::new(Faulty(fault))))).is_err()
}

/// Returns how many histories the differential run needs to notice the fault.
fn differs(fault: Fault) -> Option<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fails = |seed| {
        let run = || runtime.block_on(differential::check_seed(&Faulty(fault), seed));
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    // The seeds are fixed: this tests the kit, which must not pass by luck.
    (1..=HISTORIES).find(|seed| fails(*seed))
}

const HISTORIES: u64 = 20;

#[track_caller]
fn caught(fault: Fault, cases: &[&str]) {
    for case in cases {
        assert!(notices(case, fault), "{case} passes on a store with {fault:?}");
    }
    let seed = differs(fault);
    assert!(seed.is_some(), "{HISTORIES} histories agree with the reference on a store with {fault:?}");
}

/// Checks that the cases with recorded histories notice the fault, whatever the seed is.
#[track_caller]
fn without_an_order(fault: Fault) {
    for case in ["s2_recorded_histories_are_linearizable", "s3_histories_with_faults_are_linearizable"] {
        for _ in 0..5 {
            assert!(notices(case, fault), "{case} passes on a store with {fault:?}");
        }
    }
}

/// Checks that the case with recorded transactions notices the fault. A single run may be too orderly to show it.
#[track_caller]
fn not_serializable(fault: Fault) {
    soon_noticed("o5_transactions_over_many_keys_are_serializable", fault);
}

/// Checks that one of several runs of a random case notices the fault.
#[track_caller]
fn soon_noticed(case: &str, fault: Fault) {
    const RUNS: usize = 12;
    assert!((0..RUNS).any(|_| notices(case, fault)), "{case} passes {RUNS} times on a store with {fault:?}");
}

#[test]
fn a_sound_store_passes() {
    for case in [
        "o5_transactions_over_many_keys_are_serializable",
        "o5_transactions_with_lost_replies_are_serializable",
        "t1_create_if_absent_has_one_winner",
        "k3_a_stale_holder_writes_nothing",
        "s2_recorded_histories_are_linearizable",
        "s3_histories_with_faults_are_linearizable",
    ] {
        assert!(!notices(case, Fault::None), "{case}");
    }
    assert_eq!(differs(Fault::None), None);
}

#[test]
fn ignored_document_versions_are_caught() {
    caught(
        Fault::IgnoresDocumentVersions,
        &[
            "t1_create_if_absent_has_one_winner",
            "t2_stale_version_conflicts",
            "t3_delete_keeps_the_version",
            "t4_stale_delete_conflicts",
            "s2_sixty_four_writers_all_land",
            "s2_recorded_histories_are_linearizable",
            "w10_a_time_limit_and_a_signal_race",
            "i1_one_request_runs",
        ],
    );
}

#[test]
fn ignored_stream_versions_are_caught() {
    caught(
        Fault::IgnoresStreamVersions,
        &[
            "t8_appends_at_the_same_version_have_one_winner",
            "e1_a_wrong_version_reports_expected_and_actual",
            "e2_racing_creations_have_one_winner",
            "e3_an_invariant_holds_under_racing_deciders",
        ],
    );
}

#[test]
fn honoured_stale_fences_are_caught() {
    caught(
        Fault::HonoursStaleFences,
        &[
            "k3_a_stale_holder_writes_nothing",
            "k2_reacquiring_makes_the_older_fence_stale",
            "r7_effects_and_ack_are_one_commit",
            "w2_the_journal_comes_with_the_grant",
        ],
    );
}

#[test]
fn torn_batches_are_caught() {
    caught(
        Fault::TearsBatches,
        &[
            "t6_one_failing_precondition_changes_nothing",
            "t7_a_conflict_fails_no_other_batch",
            "e4_several_streams_commit_together",
        ],
    );
}

#[test]
fn forgotten_operation_ids_are_caught() {
    caught(
        Fault::ForgetsOperations,
        &[
            "t9_same_op_id_returns_the_first_receipt",
            "t9_racing_repetitions_have_one_effect",
            "s3_histories_with_faults_are_linearizable",
            "s11_an_operation_id_resolves_the_outcome",
            "w8_early_and_double_signals",
        ],
    );
}

#[test]
fn forgotten_event_ids_are_caught() {
    caught(
        Fault::ForgetsEventIds,
        &[
            "t10_same_event_ids_return_the_first_receipt",
            "t10_reused_event_ids_are_refused",
            "t10_racing_repetitions_append_once",
        ],
    );
}

#[test]
fn a_boundary_that_is_off_by_a_tick_is_caught() {
    caught(Fault::ClaimsATickLate, &["k4_the_boundary_instant_is_the_end", "k4_due_time_is_a_boundary_too"]);
}

#[test]
fn documents_that_never_end_are_caught() {
    caught(
        Fault::ForgetsExpiry,
        &["t11_expired_documents_are_absent_for_everyone", "i5_after_its_time_a_key_runs_again"],
    );
}

#[test]
fn a_reader_that_skips_is_caught() {
    caught(
        Fault::SkipsEvents,
        &["o1_a_tailing_reader_misses_nothing", "o4_the_log_is_the_sum_of_the_streams"],
    );
}

#[test]
fn pages_that_skip_are_caught() {
    caught(
        Fault::SkipsAtPageEnds,
        &["t5_every_page_size_gives_the_same_list", "t5_pages_neither_repeat_nor_skip"],
    );
}

#[test]
fn rows_that_are_handed_out_twice_are_caught() {
    caught(
        Fault::GrantsWhatIsHeld,
        &[
            "k1_first_acquisition_has_one_winner",
            "k2_owner_renews_and_others_wait",
            "w11_one_drives_and_the_other_is_denied_as_leased",
        ],
    );
}

#[test]
fn lost_wakes_are_caught() {
    caught(
        Fault::LosesWakes,
        &["r6_a_row_woken_while_held_runs_again", "r9_commits_do_not_wait_for_reactions"],
    );
}

#[test]
fn a_version_that_is_not_compared_leaves_no_order() {
    without_an_order(Fault::IgnoresExactVersions);
}

#[test]
fn a_stale_read_leaves_no_order() {
    without_an_order(Fault::ReadsStale);
}

#[test]
fn a_forgotten_write_leaves_no_order() {
    without_an_order(Fault::ForgetsWrites);
}

#[test]
fn a_delta_that_counts_twice_leaves_no_order() {
    without_an_order(Fault::MergesTwice);
}

#[test]
fn document_versions_that_are_not_compared_are_not_serializable() {
    not_serializable(Fault::IgnoresDocumentVersions);
}

#[test]
fn stream_versions_that_are_not_compared_are_not_serializable() {
    not_serializable(Fault::IgnoresStreamVersions);
}

#[test]
fn reads_without_a_snapshot_are_not_serializable() {
    not_serializable(Fault::ReadsRowByRow);
}

#[test]
fn batches_that_are_not_atomic_are_not_serializable() {
    not_serializable(Fault::SplitsBatches);
}

#[test]
fn stale_reads_are_not_serializable() {
    not_serializable(Fault::ReadsStale);
}

#[test]
fn deltas_that_count_twice_are_not_serializable() {
    not_serializable(Fault::MergesTwice);
}

#[test]
fn operation_ids_that_are_forgotten_are_not_serializable() {
    soon_noticed("o5_transactions_with_lost_replies_are_serializable", Fault::ForgetsOperations);
}

#[test]
fn truncates_that_remove_too_much_are_caught() {
    caught(
        Fault::TruncatesTooMuch,
        &[
            "e7_a_truncate_removes_the_beginning_and_nothing_else",
            "e7_readers_begin_with_the_remaining_events",
            "e7_grants_bring_the_remaining_events",
        ],
    );
}

#[test]
fn heads_that_go_with_the_last_event_are_caught() {
    caught(
        Fault::ForgetsHeads,
        &["e7_appends_continue_after_everything_was_removed", "e7_a_closed_stream_can_be_truncated"],
    );
}

/// Histories run one after another have no snapshots to tear, so only the cases notice this fault.
#[test]
fn torn_reads_are_noticed() {
    for case in ["t14_a_read_of_rows_is_one_snapshot", "t14_documents_of_one_read_are_one_snapshot"] {
        assert!(!notices(case, Fault::None), "{case}");
        assert!(notices(case, Fault::TearsReads), "{case}");
    }
}
