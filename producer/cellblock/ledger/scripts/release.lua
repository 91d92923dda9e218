-- release: give a running job back without counting a loss (this host cannot run it now).
-- ran: 1 if its code had begun; else it keeps its deadline, so that it cannot be given back for ever
-- The fence stays raised, so everything the released attempt still does is stale.
-- Returns {"released", woken id, ...}: their messages have to be sent
--       · {"cancelled", ...} (it had been asked to stop) · {"stale", state}
local a, invalid = arguments('job_id fence# op ran# cancelled_result' .. COMMON, OF_JOB)
if not a then
  return invalid
end
local job = whole_record()
if job.op_release == a.op and job.attempt == int(a.fence) then
  -- One message too many is harmless; a missing one would have to wait for the sweep.
  return job.state == 'cancelled' and { 'cancelled' } or { 'released', a.job_id }
end
if job.state ~= 'running' or job.attempt ~= int(a.fence) then
  return { 'stale', job.state or 'unknown' }
end
local now = now_ms()
local more = { 'op_release', a.op }
if job.cancel == '1' then
  return reply('cancelled', close(a, job, 'cancelled', 'cancelled', a.cancelled_result, now, 0, more))
end
local ids = requeue(a, job, 'released', 0, now, a.ran == 1, more)
emit('retried', a.job_id, now, job)
return reply('released', ids)
