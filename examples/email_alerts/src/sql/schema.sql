-- The tables of the service. What is to be processed has created_at and processed_at; processed_at
-- comes last.
CREATE SCHEMA email_alerts;

CREATE TABLE email_alerts.subscribers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  address text NOT NULL UNIQUE,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE email_alerts.subscriptions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subscriber_id bigint NOT NULL REFERENCES email_alerts.subscribers,
  list text NOT NULL,
  frequency text NOT NULL CHECK (frequency IN ('immediately', 'daily', 'weekly')),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (subscriber_id, list)
);
CREATE INDEX ON email_alerts.subscriptions (list, frequency, subscriber_id);

CREATE TABLE email_alerts.content_changes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  list text NOT NULL,
  title text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz
);
CREATE INDEX ON email_alerts.content_changes (created_at);
CREATE INDEX ON email_alerts.content_changes (id) WHERE processed_at IS NULL;

CREATE TABLE email_alerts.messages (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  list text NOT NULL,
  title text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz
);
CREATE INDEX ON email_alerts.messages (created_at);
CREATE INDEX ON email_alerts.messages (id) WHERE processed_at IS NULL;

CREATE TABLE email_alerts.digest_runs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  date date NOT NULL,
  range text NOT NULL CHECK (range IN ('daily', 'weekly')),
  starts_at timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz,
  completed_at timestamptz,
  UNIQUE (date, range)
);

CREATE TABLE email_alerts.digest_run_subscribers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  digest_run_id bigint NOT NULL REFERENCES email_alerts.digest_runs,
  subscriber_id bigint NOT NULL REFERENCES email_alerts.subscribers,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz,
  UNIQUE (digest_run_id, subscriber_id)
);
CREATE INDEX ON email_alerts.digest_run_subscribers (id) WHERE processed_at IS NULL;

-- An email is about a content change, a message, a digest, or a subscription itself. The unique
-- keys make what is repeated harmless.
CREATE TABLE email_alerts.emails (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subscriber_id bigint NOT NULL REFERENCES email_alerts.subscribers,
  subject text NOT NULL,
  queue text NOT NULL,
  status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
  content_change_id bigint REFERENCES email_alerts.content_changes,
  message_id bigint REFERENCES email_alerts.messages,
  digest_run_subscriber_id bigint REFERENCES email_alerts.digest_run_subscribers UNIQUE,
  refusal text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz,
  UNIQUE (content_change_id, subscriber_id),
  UNIQUE (message_id, subscriber_id)
);
CREATE INDEX ON email_alerts.emails (id) WHERE status = 'pending';
