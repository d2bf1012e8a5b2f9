-- The live settings; for how many seconds the oldest transaction with a snapshot has kept the
-- server from cleaning up, of those that this role may see; and whether it may see all.
SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('fsync'),
  current_setting('synchronous_commit'), current_setting('full_page_writes'), current_setting('autovacuum'),
  current_setting('statement_timeout'), current_setting('data_checksums'), current_setting('synchronous_standby_names'),
  pg_is_in_recovery(), current_setting('max_connections')::int, (SELECT count(*)::int FROM pg_stat_activity),
  (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::bigint FROM pg_stat_activity a
   WHERE a.backend_xmin IS NOT NULL AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()),
  current_database(), pg_database_size(current_database()), pg_has_role('pg_read_all_stats', 'USAGE')
