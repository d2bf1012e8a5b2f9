-- ?1 queue  ?2 key  ?3 id: only its own holder gives a key back
DELETE FROM backstop_key WHERE queue = ?1 AND key = ?2 AND id = ?3
