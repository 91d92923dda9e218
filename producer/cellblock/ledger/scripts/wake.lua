-- wake: a delayed job's time has come. Idempotent.
-- KEYS  of_job
-- Returns {"woken", job_id, priority}: publish it · {"gone"}: it ended meanwhile · {"live"}: not yet
local a, invalid = arguments('job_id')
if not a then
  return invalid
end
local now = now_ms()
local due = redis.call('ZSCORE', keys.delayed, a.job_id)
if due and tonumber(due) > now then
  return { 'live' }
end
redis.call('ZREM', keys.delayed, a.job_id)
local job = redis.call('HMGET', keys.job, 'state', 'priority')
if not due or job[1] ~= 'queued' then
  return { 'gone' }
end
redis.call('ZADD', keys.waiting, int(now), a.job_id)
return { 'woken', a.job_id, job[2] }
