-- The record that was offered meanwhile is the one that its holder holds.
-- ?1 key  ?2 position
UPDATE backstop_stream_record SET arrival = 0 WHERE key = ?1 AND position = ?2
