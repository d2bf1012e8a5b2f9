-- ?1 subscription
DELETE FROM last_update WHERE subscription = ?1
