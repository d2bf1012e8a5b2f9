-- A row with this number belongs to a job that was removed, and is replaced.
-- ?1 no  ?2 queue  ?3 fingerprint  ?4 finished_at
INSERT INTO backstop_dead (no, queue, fingerprint, finished_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (no) DO UPDATE SET queue = excluded.queue, fingerprint = excluded.fingerprint, finished_at = excluded.finished_at
