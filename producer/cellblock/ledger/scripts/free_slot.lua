-- free_slot: take back the slot of a job that does not run and has no running nested run. Idempotent.
-- Returns {"freed"} · {"held"}: it, or a nested run, still runs; an expired lease counts until it is reaped
local a, invalid = arguments('job_id', OF_JOB)
if not a then
  return invalid
end
if redis.call('ZSCORE', keys.leases, a.job_id) or redis.call('SCARD', keys.nested) > 0 then
  return { 'held' }
end
redis.call('SREM', keys.slots, a.job_id)
return { 'freed' }
