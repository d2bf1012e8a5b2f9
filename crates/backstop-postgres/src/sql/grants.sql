-- A function that is called from outside takes its plans and its names from no session: no
-- statistics, no search_path and no setting of a pooled connection can change what it does. All
-- other functions are called only by these.
DO $$
DECLARE
  v_function regprocedure;
  v_entry boolean;
BEGIN
  FOR v_function, v_entry IN
    SELECT p.oid::regprocedure, p.proname = ANY ('{enqueue,enqueue_jobs,claim,settle,close_emptied,beat,begin_runs,seize,promote,amend,pick,jobs_by_id,
      list_waiting,list_ready,list_finished,list_arrivals,queue_ids,queues_after,queues_in_line,
      jobs_within,forget_queues,queues,set_gate,set_bounds,declare_queues,workers,expired_leases,prune,drift,bury,groups,holders,cells,
      list_cells,swap,offer,take,take_due,keep,advance,streams,list_stream_keys,read_stream_key}'::text[])
    FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function);
    CONTINUE WHEN NOT v_entry;
    EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp SET plan_cache_mode = force_generic_plan
      SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
      SET lock_timeout = ''4s''',
      v_function, current_schema());
  END LOOP;
END $$;
