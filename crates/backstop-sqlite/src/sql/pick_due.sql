-- ?1 state  ?2 queue or NULL  ?3 kind or NULL  ?4 how many
SELECT d.no FROM backstop_due d
WHERE ?1 = (SELECT state FROM backstop_job WHERE no = d.no)
  AND (?2 IS NULL OR ?2 = (SELECT queue FROM backstop_job WHERE no = d.no))
  AND (?3 IS NULL OR ?3 = (SELECT kind FROM backstop_job WHERE no = d.no))
LIMIT ?4
