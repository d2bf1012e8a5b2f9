-- A run is over when its last subscriber was processed; one without subscribers, when somebody
-- looks.
UPDATE email_alerts.digest_runs AS run
   SET completed_at = coalesce((SELECT max(part.processed_at) FROM email_alerts.digest_run_subscribers AS part
                                 WHERE part.digest_run_id = run.id), clock_timestamp())
 WHERE run.processed_at IS NOT NULL
   AND run.completed_at IS NULL
   AND NOT EXISTS (SELECT FROM email_alerts.digest_run_subscribers AS part
                    WHERE part.digest_run_id = run.id AND part.processed_at IS NULL)
