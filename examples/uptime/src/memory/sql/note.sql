-- ?1 subscription, ?2 position, ?3 effect, ?4 last position of a range, ?5 its count, ?6 now, ?7
-- line
INSERT INTO line (subscription, position, effect, range_to, range_count, at_ms, line)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
