-- ?1 subscription
SELECT position, step FROM last_update WHERE subscription = ?1
