-- ?1 fingerprint  ?2 how many
SELECT no FROM backstop_dead INDEXED BY backstop_dead_at WHERE fingerprint = ?1 LIMIT ?2
