-- A worker that seized the lease does not run the job: what is known of the worker that vanished
-- stays.
-- ?1 id  ?2 lease  ?3 queue
UPDATE backstop_running SET begun = begun OR vanished_worker IS NULL WHERE id = ?1 AND lease = ?2 AND queue = ?3
