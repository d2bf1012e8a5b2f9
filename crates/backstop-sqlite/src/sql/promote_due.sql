-- ?1 now  ?2 how many
SELECT d.run_at, d.no, (SELECT state FROM backstop_job WHERE no = d.no), (SELECT queue FROM backstop_job WHERE no = d.no),
  (SELECT level FROM backstop_job WHERE no = d.no)
FROM backstop_due d WHERE d.run_at <= ?1 ORDER BY d.run_at, d.no LIMIT ?2
