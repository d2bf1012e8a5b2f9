-- ?1 detector, ?2 position of the failure that opened it, ?3 position of the success
UPDATE incident SET closed_ms = ?3 WHERE detector = ?1 AND opened_ms = ?2
