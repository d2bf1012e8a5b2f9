-- What is in the digest of a subscriber's part in a run. $1 the part
SELECT count(*), run.range, run.date::text, part.subscriber_id
  FROM email_alerts.digest_run_subscribers AS part
  JOIN email_alerts.digest_runs AS run ON run.id = part.digest_run_id
  JOIN email_alerts.subscriptions AS subscription
    ON subscription.subscriber_id = part.subscriber_id AND subscription.frequency = run.range
  JOIN (SELECT list, created_at FROM email_alerts.content_changes
        UNION ALL
        SELECT list, created_at FROM email_alerts.messages) AS news
    ON news.list = subscription.list AND news.created_at >= run.starts_at AND news.created_at < run.ends_at
 WHERE part.id = $1
 GROUP BY run.range, run.date, part.subscriber_id
