//! The contract of the port: what every store must do, one named test per case.
//!
//! ```
//! use backstop_memory::MemoryStore;
//! use backstop_testkit::contract::queues::QUEUES_IN_CONTRACT;
//!
//! backstop_testkit::store_contract!(|| async { MemoryStore::new().with_max_queues(QUEUES_IN_CONTRACT) });
//! # fn main() {}
//! ```
//!
//! A bug found in one store becomes a case here, and with that a test of all.

pub mod bounds;
pub mod cells;
pub mod claim;
pub mod dead;
pub mod enqueue;
pub mod holders;
pub mod lease;
pub mod operator;
pub mod payload;
pub mod promote;
pub mod queues;
pub mod random;
pub mod repeat;
pub mod settle;
pub mod since;
pub mod streams;
pub mod unique;

use backstop_core::port::Store;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Runs every case of the contract as a test of its own.
///
/// The expression is a closure whose future gives a fresh store: empty and migrated. With it may
/// come whatever must outlive it, such as a temporary directory: `|| async { (store, dir) }`. It is
/// called once per case. The store takes at most
/// [`contract::queues::QUEUES_IN_CONTRACT`](crate::contract::queues::QUEUES_IN_CONTRACT) queues.
#[macro_export]
macro_rules! store_contract {
    ($fresh:expr) => {
        $crate::contract_tests! { $fresh;
            enqueue: run {
                enqueue_twice_is_once
                an_id_twice_in_one_batch_is_once
                an_id_is_the_same_in_every_state
                an_id_that_another_queue_has_is_never_the_same
                an_empty_batch_is_answered_with_nothing
                only_a_job_for_later_waits_for_its_time
                a_job_is_seen_as_it_was_handed_in
                a_trace_context_comes_back
                a_trace_context_is_buried_with_its_job
                times_keep_their_microseconds
                names_are_any_unicode
                too_many_jobs_at_once_are_misuse
                too_many_bytes_at_once_are_misuse
                a_job_too_far_ahead_is_misuse
                a_hint_arrives_after_an_enqueue
            }
            claim: run {
                claim_never_hands_one_job_to_two
                claim_respects_level_then_time
                claim_takes_at_most_n_per_queue
                a_queue_named_twice_gives_each_job_once
                a_claim_of_nothing_is_empty
                a_repeated_claim_returns_the_same_leases
                a_repeated_claim_returns_only_what_is_left_of_it
                waiting_jobs_are_never_claimed_early
                late_jobs_are_never_skipped
                concurrent_enqueuers_and_claimers_leave_nothing_behind
                a_lease_carries_the_whole_job
                a_running_job_shows_its_holder
                an_oversized_claim_is_misuse
                a_lease_of_nothing_or_of_days_is_misuse
            }
            streams: run {
                offer_twice_is_once
                held_records_come_in_position_order
                a_record_comes_back_as_it_went_in
                take_leases_a_key_to_one_worker
                a_repeated_take_returns_the_same_keys
                a_repeated_take_brings_no_forgotten_key_back
                an_unknown_key_can_be_taken
                an_advance_changes_all_of_a_key
                a_repeated_advance_counts_once
                a_stale_advance_changes_nothing
                a_key_is_seized_from_its_holder
                the_wake_up_survives_a_crash_and_cannot_double
                a_record_offered_while_its_key_is_advanced_is_never_stranded
                a_record_offered_under_a_lease_is_due_when_it_ends
                a_key_without_records_is_never_due
                the_longest_due_are_taken_first
                an_arrival_ends_a_wait
                keep_extends_and_reports_lost
                clear_forgets_a_key
                many_offer_one_key_at_once
                a_window_is_bounded
                a_look_at_a_key_ends_at_its_bytes
                a_full_key_refuses_records
                advances_of_one_call_stand_alone
                streams_are_apart
                streams_and_keys_are_listed
                a_hint_arrives_after_an_offer
                oversized_calls_are_misuse
            }
            settle: run {
                stale_settle_changes_nothing
                settle_mixes_outcomes_in_one_batch
                refund_restores_the_attempt_and_the_place
                a_retried_job_goes_to_the_tail_of_its_level
                a_lost_job_keeps_its_place_and_counts_the_loss
                a_settled_job_waits_until_its_time
                a_repeated_settlement_is_applied_once
                another_outcome_under_a_settled_lease_is_stale
                a_repeated_settlement_of_what_is_gone_is_stale_and_changes_nothing
                a_repeated_settlement_is_known_after_the_next_claim
                one_lease_twice_in_a_batch_is_settled_once
                done_and_gone_leaves_nothing_but_the_total
                an_ended_job_shows_its_end
                a_death_by_crashes_counts_a_loss_and_no_attempt
                attempts_count_the_runs
                jobs_given_back_while_others_claim_are_never_lost
                too_many_settlements_are_misuse
            }
            lease: run {
                beat_reports_lost
                a_settled_lease_keeps_no_claim_alive
                a_beat_of_no_leases_is_a_sign_of_life
                a_claim_stays_alive_as_a_whole_while_one_lease_is_beaten
                a_late_beat_never_shortens_a_claim
                a_beat_after_the_clock_was_set_back_makes_a_claim_shorter
                a_claim_absurdly_far_ahead_has_expired
                a_dead_workers_claim_is_free_one_lease_after_the_clock_was_set_back
                a_run_noted_as_begun_is_known_to_the_seizer
                begin_tells_lost_leases
                begin_of_a_job_under_a_stale_lease_changes_nothing
                a_beat_revives_an_expired_claim_nobody_seized
                an_expired_lease_nobody_seized_still_settles
                seize_fences_the_old_worker
                seize_takes_nothing_of_a_queue_that_is_spared
                seize_takes_only_what_has_expired
                seize_tells_whether_more_has_expired
                expired_leases_are_counted_until_they_are_taken_over
                an_expired_lease_behind_10_000_emptied_ones_is_seized_by_the_next_call
                seize_twice_yields_once
                seize_never_hands_one_job_to_two
                a_seizer_that_dies_keeps_the_first_vanished_workers_name
                the_next_loss_names_the_next_worker
                many_small_claims_are_seized_in_the_order_they_expired
                seize_takes_at_most_max_oldest_claim_first
                seize_stays_bounded
                what_is_left_of_a_claim_seized_in_part_stays_with_its_worker
                oversized_beats_and_leases_of_nothing_are_misuse
            }
            since: run {
                a_running_job_tells_since_when
                a_claim_begins_at_once_in_all_its_queues
                beats_and_repetitions_leave_the_beginning_as_it_is
                a_seized_job_begins_with_its_seizer
                the_rest_of_a_claim_seized_in_part_keeps_its_beginning
                what_no_longer_runs_has_no_beginning
            }
            dead: run {
                a_death_over_the_bound_is_refused
                deaths_at_once_never_exceed_the_bound
                deaths_are_grouped_by_what_they_died_of
                a_fingerprint_selects_its_group
                ended_jobs_are_listed_from_either_end
                an_amendment_heeds_the_state_it_means
                a_dead_letter_moved_is_in_exactly_one_place
                a_move_by_filter_moves_each_once
                a_move_is_refused_while_a_twin_lives_there
                what_is_buried_is_a_dead_letter
                a_burial_heeds_its_bounds
                attempts_are_counted_anew_after_progress
            }
            bounds: run {
                a_full_queue_refuses
                a_refused_job_holds_no_key
                the_oldest_becomes_a_dead_letter
                the_oldest_is_dropped
                a_batch_pushes_out_what_came_before_it
                pushes_at_once_never_exceed_the_bound
                requeues_and_pushes_at_once_never_exceed_the_bound
                a_new_bound_removes_nothing
                what_an_operator_brings_back_needs_room
                a_move_needs_room_in_the_queue_it_goes_to
            }
            cells: run {
                a_cell_is_changed_only_by_who_has_seen_it
                a_repeated_change_is_applied_once
                changes_of_one_call_stand_alone
                of_many_changes_at_once_one_wins
                cells_are_listed_by_name
                a_cell_has_its_limits
            }
            promote: run {
                promote_stops_at_now_and_tells_the_next
                promoted_jobs_line_up_by_time_behind_the_ready_ones
                promote_moves_at_most_max
                promote_of_100000_due_at_once_stays_bounded
                promoters_at_once_move_each_job_once
                a_job_called_off_is_never_promoted
            }
            unique: run {
                duplicate_names_the_holder
                a_key_counts_in_its_queue
                unique_key_frees_on_a_final_state
                unique_key_frees_when_its_job_is_cancelled_or_deleted
                a_former_holder_does_not_free_the_key_of_the_next
                unique_key_frees_at_the_end_of_its_period
                unique_key_is_held_in_its_chosen_states_only
                a_key_may_outlast_its_job
                a_key_may_outlast_a_job_that_is_gone
                prune_keeps_a_key_whose_hold_lasts
                prune_forgets_keys_whose_period_is_over
                prune_leaves_a_key_to_its_next_holder
                retry_of_a_dead_job_whose_twin_lives_is_refused_naming_it
                of_many_pushes_at_once_one_gets_the_key
            }
            holders: run {
                a_holder_is_named_with_its_state_until_it_ends
                a_key_that_outlasts_its_job_names_it
                a_live_job_is_named_although_its_key_is_free
                holders_come_in_the_order_of_the_keys
                a_key_follows_what_an_operator_does
                too_many_keys_at_once_are_misuse
            }
            payload: run {
                payload_bytes_come_back_identical
            }
            queues: run {
                a_call_with_one_queue_too_many_is_refused
                a_declared_queue_keeps_its_bounds
                a_move_to_one_queue_too_many_is_refused
                callers_at_once_keep_the_bound_of_queues
                an_empty_queue_is_forgotten
                a_queue_that_is_being_forgotten_loses_no_job
                a_pruning_goes_on_where_it_stopped
                a_page_ends_at_its_bytes
                a_claim_ends_at_its_bytes
            }
            operator: run {
                amend_all_must_be_said
                every_action_in_every_state_answers_as_the_table_says
                amend_answers_for_every_id
                ids_of_a_queue_mean_its_jobs_only
                amend_matching_touches_only_what_fits
                ids_are_amended_at_once_whatever_cursor_and_max
                an_amendment_pages_through_everything_once
                an_amendment_reaches_a_rare_kind_among_many_jobs
                refused_jobs_do_not_hide_the_ones_behind_them
                a_bad_cursor_of_an_amendment_is_misuse
                a_dead_job_requeued_is_in_exactly_one_place
                cancelling_a_running_job_makes_its_settle_stale_and_its_beat_lost
                amending_a_waiting_job_leaves_the_ready_ones_in_line
                counts_equal_rows
                jobs_of_a_queue_are_found_by_their_ids
                lists_page_through_everything_exactly_once
                a_list_goes_on_while_what_it_showed_is_changed
                ready_jobs_are_listed_in_claim_order
                a_page_keeps_to_its_limit
                a_bad_cursor_is_misuse
                a_paused_queue_gives_nothing_and_takes_jobs_in
                a_queue_may_be_paused_before_it_has_jobs
                a_queue_tells_when_its_next_job_was_to_run
                prune_keeps_the_unexpired
                prune_obeys_done_max_oldest_first
                prune_keeps_each_queue_by_its_own_entry
                prune_leaves_queues_it_is_told_nothing_about_alone
                totals_survive_pruning
                workers_are_those_that_beat
                a_silent_worker_is_forgotten_after_a_day
                a_store_tells_its_time_and_its_promise
            }
            repeat: run {
                a_lost_enqueue_can_be_repeated
                a_lost_claim_can_be_repeated
                a_lost_settle_can_be_repeated
                a_lost_settle_of_a_job_that_is_gone_counts_once
                a_lost_begin_can_be_repeated
                a_lost_beat_can_be_repeated
                a_lost_promote_can_be_repeated
                a_lost_seize_can_be_repeated
                a_lost_retry_can_be_repeated
                a_lost_cancel_can_be_repeated
                a_lost_delete_can_be_repeated
                a_lost_step_of_an_amendment_can_be_repeated
                a_lost_pause_can_be_repeated
                a_lost_prune_can_be_repeated
                migrate_can_be_repeated
            }
            random: run_many {
                random_operations_agree_with_the_memory_store
                random_operations_survive_lost_replies
            }
        }
    };
}

/// Expands a list of cases, that of [`store_contract!`] or some of them, to tests.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_tests {
    ($fresh:expr; $($subject:ident: $run:ident { $($case:ident)* })*) => {
        $(
            mod $subject {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::contract::$run($fresh, $crate::contract::$subject::$case);
                    }
                )*
            }
        )*
    };
}

/// A store to be tested, and what must outlive it.
pub struct Subject {
    /// The store: declared first, so that it is closed before its directory goes.
    pub store: Arc<dyn Store>,
    guard: Box<dyn Any + Send>,
}

impl Subject {
    fn new(store: Arc<dyn Store>, guard: impl Any + Send) -> Self {
        Self {
            store,
            guard: Box::new(guard),
        }
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// What a factory may give: a store, or a store and a guard. `Form` only tells the forms apart for
/// the compiler.
pub trait Fresh<Form>: Send {
    /// The store, with what must outlive it.
    fn subject(self) -> Subject;
}

/// The forms of [`Fresh`].
pub mod form {
    /// A store.
    #[derive(Debug)]
    pub enum Alone {}
    /// A store and a guard.
    #[derive(Debug)]
    pub enum Guarded {}
    /// A store behind an `Arc`.
    #[derive(Debug)]
    pub enum Shared {}
    /// A store behind an `Arc`, and a guard.
    #[derive(Debug)]
    pub enum SharedGuarded {}
}

impl<S: Store + 'static> Fresh<form::Alone> for S {
    fn subject(self) -> Subject {
        Subject::new(Arc::new(self), ())
    }
}

impl<S: Store + 'static, G: Any + Send> Fresh<form::Guarded> for (S, G) {
    fn subject(self) -> Subject {
        Subject::new(Arc::new(self.0), self.1)
    }
}

impl Fresh<form::Shared> for Arc<dyn Store> {
    fn subject(self) -> Subject {
        Subject::new(self, ())
    }
}

impl<G: Any + Send> Fresh<form::SharedGuarded> for (Arc<dyn Store>, G) {
    fn subject(self) -> Subject {
        Subject::new(self.0, self.1)
    }
}

/// A case, or one sequence of many, that takes longer hangs.
const CASE_TIME_MAX: Duration = Duration::from_mins(5);

/// Runs one case on a fresh store.
pub fn run<Form, Made, Making, Running>(
    fresh: impl Fn() -> Making,
    case: impl FnOnce(Arc<dyn Store>) -> Running,
) where
    Made: Fresh<Form>,
    Making: Future<Output = Made>,
    Running: Future<Output = ()>,
{
    block_on(in_time(async {
        let subject = fresh().await.subject();
        case(Arc::clone(&subject.store)).await;
    }));
}

/// Makes as many fresh stores as a case wants.
pub type Factory = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Subject>>>>;

/// Runs one case that needs more than one fresh store, and sees to its own deadlines: how long it
/// takes depends on how much of it was asked for.
pub fn run_many<Form, Made, Making, Running>(
    fresh: impl Fn() -> Making + 'static,
    case: impl FnOnce(Factory) -> Running,
) where
    Made: Fresh<Form>,
    Making: Future<Output = Made> + 'static,
    Running: Future<Output = ()>,
{
    block_on(case(Box::new(move || {
        let making = fresh();
        Box::pin(async { making.await.subject() })
    })));
}

fn block_on(case: impl Future<Output = ()>) {
    // Several threads, also for cases of one task: a store must not depend on the runtime of its
    // tests.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = runtime.expect("a test can have threads");
    runtime.block_on(case);
}

/// What `work` comes to, if it comes to an end.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let worked = tokio::time::timeout(CASE_TIME_MAX, work).await;
    assert!(
        worked.is_ok(),
        "the store hangs: not through after {CASE_TIME_MAX:?}"
    );
    worked.expect("asserted")
}

#[cfg(test)]
mod tests;
