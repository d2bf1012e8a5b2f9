-- The rule of `backstop_core::lease::extended`. ?1 number  ?2 until  ?3 the longest a claim is
-- kept: what is past it comes from before the clock was set back
UPDATE backstop_claim SET until = ?2 WHERE number = ?1 AND (until < ?2 OR until > ?3)
