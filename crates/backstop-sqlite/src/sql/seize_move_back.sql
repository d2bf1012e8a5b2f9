-- The rule of `backstop_core::lease::end_after_clock_set_back`.
-- ?1 now  ?2 a worker with a heartbeat later than this sent it before the clock was set back
UPDATE backstop_claim SET until = ?1 + until - w.seen_at
FROM backstop_worker w WHERE w.name = backstop_claim.worker AND w.seen_at > ?2 AND backstop_claim.until >= w.seen_at
