-- expire: end a job that was not started in time. Idempotent.
-- KEYS  of_job
-- Returns {"live"} · {"gone"} · {"expired", woken id, ...}: their messages have to be sent
local a, invalid = arguments('job_id result' .. COMMON)
if not a then
  return invalid
end
local now = now_ms()
local job = redis.call('HMGET', keys.job, 'state', 'expires_ms')
if not job[1] or is_terminal(job[1]) or job[1] == 'running' then
  redis.call('ZREM', keys.deadlines, a.job_id)
  redis.call('ZREM', keys.line, a.job_id)
  return { 'gone' }
end
if now < tonumber(job[2]) then
  return { 'live' }
end
return reply('expired', close(a, 'rejected', 'rejected', a.result, now))
