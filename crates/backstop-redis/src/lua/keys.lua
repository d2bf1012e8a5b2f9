-- Prefix of every script of a queue: its keys, and what they hold.
--
-- KEYS[1]  records    hash   id -> record
-- KEYS[2]  payloads   hash   id -> payload and the job's own retry policy, of jobs whose record
--   does not contain both
-- KEYS[3]  histories  hash   id -> failures, of jobs that have some
-- KEYS[4]  order      zset   arrival id, of all jobs
-- KEYS[5]  ready      zset   arrival id, by place: level, then order of becoming ready; of ready
--   jobs that are in no run
-- KEYS[6]  scheduled  zset   run_at arrival id
-- KEYS[7]  retrying   zset   run_at arrival id
-- KEYS[8]  done       zset   finished_at arrival id
-- KEYS[9]  dead       zset   finished_at arrival id
-- KEYS[10] cancelled  zset   finished_at arrival id
-- KEYS[11] leases     hash   id -> lease, of running jobs
-- KEYS[12] claims     hash   number -> holder: the time of the claim, its queues, worker; see
--   held.lua
-- KEYS[13] terms      zset   number, by the end of the claim
-- KEYS[14] held       hash   number -> ids claimed under it
-- KEYS[15] left       hash   number -> how many of these are not settled
-- KEYS[16] unique     hash   unique key -> id, states, until
-- KEYS[17] lapses     zset   unique keys that outlast their job, by the end of their period
-- KEYS[18] meta       hash   gate (open or paused), seq, totals, bounds, how many members all runs
--   have, how many payloads are apart from their records
-- KEYS[19] deaths     hash   id -> fingerprint finished_at arrival, of dead jobs
-- KEYS[20] groups     zset   fingerprint finished_at arrival id, of dead jobs
-- KEYS[21] moving     hash   id -> token at queue: an ended job that is being moved to another
--   queue, see mark.lua
-- KEYS[22] moved      hash   id -> the queue it was moved to, for as long as that queue knows it
-- KEYS[23] received   hash   id token -> the outcome of a move to this queue, see receive.lua
-- KEYS[24] runs       zset   arrival id of several ready jobs in one member, by their place, see
--   runs.lua
-- KEYS[25] void       set    arrival id, of jobs in a run that have left it
-- KEYS[26] ends       hash   id -> the new beginning of a done job's record, so that settling need
--   not write the record again; see record_of
--
-- A time in a member or a record is eight bytes that sort like the time; scripts copy these bytes
-- and need not decode them. Lua has no whole numbers beyond 2^53, so lease numbers are eight bytes
-- too.
--
-- A record, by byte. What a settlement changes comes first, so that the rest is copied in one
-- piece:
--   1 state  2-9 finished_at or NULs  10-17 number and 18 tag of the last accepted settlement
--   19 reason  20-23 attempts  24-27 lost leases  28-35 run_at
--   36 flags (1 history, 2 unique key, 4 payload)  37-44 arrival  45-52 inserted_at  53 level
--   54-57 requeues  58 states and 59-78 end of its hold on the unique key  79-80 length of kind
--   81- kind, then unique key or payload, never both
-- A lease, by byte:
--   1-8 number  9 begun  10 flags, and 8 if it is the first attempt  11-18 arrival  19- place,
--   then of a seized job: | number begun worker, of the worker that vanished

local RECORDS, PAYLOADS, HISTORIES, ORDER, READY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local SCHEDULED, RETRYING, DONE, DEAD, CANCELLED = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local LEASES, CLAIMS, TERMS, HELD, LEFT = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local UNIQUE, LAPSES, META = KEYS[16], KEYS[17], KEYS[18]
local DEATHS, GROUPS, MOVING, MOVED, RECEIVED = KEYS[19], KEYS[20], KEYS[21], KEYS[22], KEYS[23]
local RUNS, VOID, ENDS = KEYS[24], KEYS[25], KEYS[26]
