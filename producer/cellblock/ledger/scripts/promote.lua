-- promote: give a tenant's free slots to its parked jobs, should a promotion have been missed. Idempotent.
-- KEYS  of_job, of any of the tenant's jobs
-- Returns {"promoted", job_id, priority, ...}: the pairs have to be published
local a, invalid = arguments('tenant slots# hold_ms#')
if not a then
  return invalid
end
if slots_of(a) == 0 then
  a.slots = redis.call('ZCARD', keys.parked) + redis.call('ZCARD', keys.slots)
end
return reply('promoted', promote(a, now_ms()))
