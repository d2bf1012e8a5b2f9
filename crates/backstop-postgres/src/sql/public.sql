-- Enqueues one job within the caller's transaction, from any language that speaks SQL. Returns the
-- id of the job, or the id of the job that holds the unique key. Times are the server's. An upgrade
-- replaces this function and never drops it: objects of users may depend on it.
CREATE OR REPLACE FUNCTION enqueue(queue text, kind text, payload json, run_at timestamptz DEFAULT NULL, priority text DEFAULT 'normal',
  unique_key text DEFAULT NULL, unique_for interval DEFAULT NULL, retry json DEFAULT NULL, id uuid DEFAULT gen_random_uuid())
RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  v_level int := array_position(ARRAY['critical', 'high', 'normal', 'low'], priority) - 1;
  v_refused record;
BEGIN
  IF queue IS NULL OR queue !~ '^[A-Za-z0-9._-]{1,128}$' THEN
    RAISE EXCEPTION 'a queue name has 1 to 128 letters, digits, dots, dashes and underscores; this one is %', quote_nullable(left(queue, 128))
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF coalesce(octet_length(kind), 0) NOT BETWEEN 1 AND 256 THEN
    RAISE EXCEPTION 'a kind has 1 to 256 bytes' USING ERRCODE = 'invalid_parameter_value';
  ELSIF payload IS NULL THEN
    RAISE EXCEPTION 'a job has a payload; write ''null'' as JSON for one that says nothing' USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(payload::text) > 1048576 THEN
    RAISE EXCEPTION 'a payload is JSON of at most 1 MiB; keep what is larger elsewhere and name it here'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF v_level IS NULL THEN
    RAISE EXCEPTION '% is not a priority; use critical, high, normal or low', quote_nullable(priority)
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(unique_key) NOT BETWEEN 1 AND 512 THEN
    RAISE EXCEPTION 'a unique key has 1 to 512 bytes; hash what is longer' USING ERRCODE = 'invalid_parameter_value';
  -- Check the kind here: a worker that cannot parse a policy falls back to that of the queue
  -- without a message. The worker parses the other fields.
  ELSIF retry IS NOT NULL AND (json_typeof(retry) <> 'object' OR coalesce(retry ->> 'kind', 'exponential') NOT IN
      ('exponential', 'fibonacci', 'steps', 'progressive', 'constant', 'polynomial')) THEN
    RAISE EXCEPTION '% is not a retry policy; its kind, if it names one, is exponential, fibonacci, steps, progressive, constant or polynomial',
      quote_literal(left(retry::text, 128)) USING ERRCODE = 'invalid_parameter_value';
  ELSIF run_at > clock_timestamp() + interval '3660 days' THEN
    RAISE EXCEPTION 'a job waits for at most ten years (3660 days); this one would run at %', run_at
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF (SELECT max(CASE json_typeof(retry -> u.list) WHEN 'array' THEN json_array_length(retry -> u.list) END)
      FROM unnest(ARRAY['delays', 'bands']) u(list)) > 100 THEN
    RAISE EXCEPTION 'a retry policy has at most 100 delays or bands' USING ERRCODE = 'invalid_parameter_value';
  ELSIF id IS NULL THEN
    RAISE EXCEPTION 'an id is a uuid; leave it out to have one made' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT e.holder, e.is_full, e.is_conflict INTO v_refused FROM enqueue_jobs(ARRAY[queue], ARRAY[1], ARRAY[v_now], ARRAY[id], ARRAY[v_level]::smallint[],
    ARRAY[kind], ARRAY[convert_to(payload::text, 'UTF8')], ARRAY[(extract(epoch FROM run_at) * 1000000)::bigint], ARRAY[unique_key],
    ARRAY[CASE WHEN unique_key IS NOT NULL THEN 15 END]::smallint[],
    ARRAY[v_now + (extract(epoch FROM unique_for) * 1000000)::bigint], ARRAY[convert_to(retry::text, 'UTF8')],
    unique_key IS NOT NULL, true) e WHERE e.at > 0;
  IF v_refused.is_full THEN
    RAISE EXCEPTION 'queue % is full', queue USING ERRCODE = 'BS002',
      HINT = 'Push again once workers have caught up, or raise the max_size of the queue.';
  ELSIF v_refused.is_conflict THEN
    RAISE EXCEPTION 'a job of another queue has id %', id USING ERRCODE = 'BS004', HINT = 'Push it under another id.';
  END IF;
  RETURN coalesce(v_refused.holder, id);
END $$;
