-- Ends a lease with its next turn. Changes nothing if the lease is not the current one or the turn
-- is repeated.
-- ?1 key  ?2 number  ?3 turn
DELETE FROM backstop_stream_lease WHERE key = ?1 AND number = ?2 AND turn < ?3
