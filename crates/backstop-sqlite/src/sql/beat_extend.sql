-- The rule of `backstop_core::lease::extend_lease`.
-- ?1 number  ?2 until  ?3 the latest end that is kept: a later one is from before the clock was set
-- back
UPDATE backstop_claim SET until = ?2 WHERE number = ?1 AND (until < ?2 OR until > ?3)
