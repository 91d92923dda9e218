-- release: give a running job back without counting a loss (this host cannot run it now).
-- The fence stays raised, so whatever the given-back attempt still does is stale.
-- KEYS  job spec result waiting leases events
-- ARGV  job_id fence op cancelled_result result_ttl_s events_kept channel
-- Returns {"released"} · {"cancelled"} (it had been asked to stop) · {"stale", state}
local keys = { job = KEYS[1], spec = KEYS[2], result = KEYS[3], waiting = KEYS[4], leases = KEYS[5], events = KEYS[6] }
local job_id, fence, op = ARGV[1], ARGV[2], ARGV[3]
local job = redis.call('HMGET', keys.job, 'state', 'attempt', 'op_release', 'cancel')
if job[3] == op then
  return { job[1] == 'cancelled' and 'cancelled' or 'released' }
end
if job[1] ~= 'running' or job[2] ~= fence then
  return { 'stale', job[1] or 'unknown' }
end
local now = now_ms()
redis.call('HSET', keys.job, 'op_release', op)
if job[4] == '1' then
  close(keys, job_id, 'cancelled', 'cancelled', ARGV[4],
    { result_ttl_s = ARGV[5], events_kept = ARGV[6], channel = ARGV[7] }, now)
  return { 'cancelled' }
end
requeue(keys, job_id, now)
return { 'released' }
