-- ?1 run_at and ?2 no of the row before
SELECT d.run_at, d.no, (SELECT state FROM backstop_job WHERE no = d.no), (SELECT queue FROM backstop_job WHERE no = d.no),
  (SELECT kind FROM backstop_job WHERE no = d.no)
FROM backstop_due d WHERE (d.run_at, d.no) > (?1, ?2) ORDER BY d.run_at, d.no
