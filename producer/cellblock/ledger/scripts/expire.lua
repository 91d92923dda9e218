-- expire: end a job that was not started in time. Idempotent.
-- Returns {"live"} · {"gone"} · {"expired", woken id, ...}: their messages have to be sent
local a, invalid = arguments('job_id result' .. COMMON, OF_JOB)
if not a then
  return invalid
end
local now = now_ms()
local job = whole_record()
if not job.state or is_terminal(job.state) or job.state == 'running' then
  redis.call('ZREM', keys.deadlines, a.job_id)
  redis.call('ZREM', keys.line, a.job_id)
  return { 'gone' }
end
if now < tonumber(job.expires_ms) then
  return { 'live' }
end
return reply('expired', close(a, job, 'rejected', 'rejected', a.result, now))
