-- bury: drop a dead letter with its payload and history; its result stays. Idempotent.
-- KEYS  of_job
-- Returns {"buried"} · {"alive"}: it is none, and nothing was changed
local a, invalid = arguments('job_id')
if not a then
  return invalid
end
if redis.call('ZREM', keys.dead, a.job_id) == 0 then
  return { 'alive' }
end
redis.call('DEL', keys.spec, keys.attempts)
return { 'buried' }
