-- release: give a running job back without counting a loss (this host cannot run it now).
-- ran: 1 if its code had begun; else it keeps its deadline, or it could be given back for ever
-- The fence stays raised, so whatever the given-back attempt still does is stale.
-- KEYS  of_job
-- Returns {"released", woken id, ...}: their messages have to be sent
--       · {"cancelled", ...} (it had been asked to stop) · {"stale", state}
local a, invalid = arguments('job_id fence# op ran# cancelled_result' .. COMMON)
if not a then
  return invalid
end
local job = redis.call('HMGET', keys.job, 'state', 'attempt', 'op_release', 'cancel')
if job[3] == a.op and job[2] == int(a.fence) then
  -- One message too many is harmless; one too few would be left to the sweep.
  return job[1] == 'cancelled' and { 'cancelled' } or { 'released', a.job_id }
end
if job[1] ~= 'running' or job[2] ~= int(a.fence) then
  return { 'stale', job[1] or 'unknown' }
end
local now = now_ms()
redis.call('HSET', keys.job, 'op_release', a.op)
if job[4] == '1' then
  return reply('cancelled', close(a, 'cancelled', 'cancelled', a.cancelled_result, now))
end
local woken = requeue(a, 'released', 0, now, a.ran == 1)
emit(a.events_kept, 'retried', a.job_id, now)
return reply('released', woken)
