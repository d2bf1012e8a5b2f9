//! The port behind PgBouncer in transaction mode: no method may need a session.

use backstop_testkit::servers::{self, Bouncer};
use std::sync::OnceLock;

fn bouncer() -> &'static Bouncer {
    static BOUNCER: OnceLock<Bouncer> = OnceLock::new();
    BOUNCER.get_or_init(|| Bouncer::start(servers::postgres()))
}

// Every method, races above all, and random operations: what a case shows beside that does not
// depend on who has the connection.
backstop_testkit::contract_tests! {
    || async { crate::open(&format!("{}&pooler=transaction&connections=4", bouncer().fresh_url())).await };
    enqueue: run {
        enqueue_twice_is_once
        a_job_is_seen_as_it_was_handed_in
        a_hint_arrives_after_an_enqueue
    }
    claim: run {
        claim_never_hands_one_job_to_two
        claim_respects_level_then_time
        late_jobs_are_never_skipped
        concurrent_enqueuers_and_claimers_leave_nothing_behind
    }
    streams: run {
        offer_twice_is_once
        take_leases_a_key_to_one_worker
        a_repeated_take_returns_the_same_keys
        a_repeated_advance_counts_once
        a_record_offered_while_its_key_is_advanced_is_never_stranded
        keep_extends_and_reports_lost
        clear_forgets_a_key
        many_offer_one_key_at_once
        a_hint_arrives_after_an_offer
    }
    settle: run {
        settle_mixes_outcomes_in_one_batch
        jobs_given_back_while_others_claim_are_never_lost
    }
    lease: run {
        seize_never_hands_one_job_to_two
    }
    dead: run {
        deaths_at_once_never_exceed_the_bound
        a_dead_letter_moved_is_in_exactly_one_place
        what_is_buried_is_a_dead_letter
    }
    bounds: run {
        pushes_at_once_never_exceed_the_bound
    }
    cells: run {
        of_many_changes_at_once_one_wins
        cells_are_listed_by_name
    }
    promote: run {
        promoters_at_once_move_each_job_once
    }
    unique: run {
        of_many_pushes_at_once_one_gets_the_key
    }
    holders: run {
        holders_come_in_the_order_of_the_keys
    }
    payload: run {
        payload_bytes_come_back_identical
    }
    operator: run {
        counts_equal_rows
        ready_jobs_are_listed_in_claim_order
        a_store_tells_its_time_and_its_promise
        workers_are_those_that_beat
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
