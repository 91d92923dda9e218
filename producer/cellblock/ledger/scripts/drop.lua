-- drop: forget a dead letter with its payload and history; its result stays. Idempotent under op.
-- KEYS  of_job
-- Returns {"dropped"} · {"alive"}: it is none, and nothing was changed
local a, invalid = arguments('job_id op')
if not a then
  return invalid
end
if redis.call('ZREM', keys.dead, a.job_id) == 0 then
  return { redis.call('HGET', keys.job, 'op_drop') == a.op and 'dropped' or 'alive' }
end
redis.call('DEL', keys.spec, keys.attempts)
if redis.call('EXISTS', keys.job) == 1 then
  redis.call('HSET', keys.job, 'op_drop', a.op)
end
return { 'dropped' }
