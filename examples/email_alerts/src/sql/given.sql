-- $1 when the run began
WITH run AS (SELECT $1::timestamptz AS began),
subscribers AS (SELECT * FROM email_alerts.subscribers),
subscriptions AS (SELECT * FROM email_alerts.subscriptions),
emails AS (SELECT * FROM email_alerts.emails),
digest_runs AS (SELECT * FROM email_alerts.digest_runs),
digest_run_subscribers AS (SELECT * FROM email_alerts.digest_run_subscribers),
new_changes AS (SELECT * FROM email_alerts.content_changes, run WHERE created_at >= began),
new_messages AS (SELECT * FROM email_alerts.messages, run WHERE created_at >= began),
wanted_digests AS (
  SELECT DISTINCT digest_runs.id AS digest_run_id, subscriptions.subscriber_id
    FROM digest_runs
    JOIN subscriptions ON subscriptions.frequency = digest_runs.range
    JOIN (SELECT list, created_at FROM email_alerts.content_changes
          UNION ALL
          SELECT list, created_at FROM email_alerts.messages) AS news
      ON news.list = subscriptions.list
     AND news.created_at >= digest_runs.starts_at AND news.created_at < digest_runs.ends_at),
addressed AS (
  SELECT emails.status, subscribers.address LIKE '%_@_%.%' AS is_good
    FROM emails JOIN subscribers ON subscribers.id = emails.subscriber_id)
