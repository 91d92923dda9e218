-- wake: a delayed job's time has come. Idempotent.
-- KEYS  of_job
-- Returns {"woken", woken id, ...}: their messages have to be sent · {"gone"}: it ended meanwhile · {"live"}: not yet
local a, invalid = arguments('job_id lane slots#')
if not a then
  return invalid
end
local now = now_ms()
local due = redis.call('ZSCORE', keys.delayed, a.job_id)
if due and tonumber(due) > now then
  return { 'live' }
end
local before = announced(a)
redis.call('ZREM', keys.delayed, a.job_id)
local job = redis.call('HMGET', keys.job, 'state', 'place')
if not due or job[1] ~= 'queued' then
  return { 'gone' }
end
redis.call('ZADD', keys.ready, job[2], a.job_id)
return reply('woken', woken(a, before))
