-- ?1 number  ?2 how many jobs left the claim
UPDATE backstop_claim SET live = live - ?2 WHERE number = ?1
