-- ?1 number  ?2 until: a claim is never cut short
UPDATE backstop_claim SET until = ?2 WHERE number = ?1 AND until < ?2
