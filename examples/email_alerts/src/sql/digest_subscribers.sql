-- $1 range, $2 start and $3 end of its time, $4 the last subscriber of the slice before, $5 how
-- many
SELECT DISTINCT subscription.subscriber_id
  FROM email_alerts.subscriptions AS subscription
 WHERE subscription.frequency = $1
   AND subscription.subscriber_id > $4
   AND (EXISTS (SELECT FROM email_alerts.content_changes AS change
                 WHERE change.list = subscription.list AND change.created_at >= $2 AND change.created_at < $3)
        OR EXISTS (SELECT FROM email_alerts.messages AS message
                    WHERE message.list = subscription.list AND message.created_at >= $2 AND message.created_at < $3))
 ORDER BY 1
 LIMIT $5
