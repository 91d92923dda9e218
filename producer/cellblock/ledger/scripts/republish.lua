-- republish: a waiting job's message was sent again. The next time it is looked at after twice as long, so
-- that a queue is never flooded with copies; a job claimed, or noted, meanwhile is left alone.
-- KEYS  of_job
-- Returns {"noted"} · {"gone"}
local a, invalid = arguments('job_id after_ms#')
if not a then
  return invalid
end
local now = now_ms()
local published = redis.call('ZSCORE', keys.waiting, a.job_id)
if not published or redis.call('EXISTS', keys.job) == 0 then
  return { 'gone' }
end
if tonumber(published) + a.after_ms <= now then
  local times = redis.call('HINCRBY', keys.job, 'republished', 1)
  local later_ms = a.after_ms * (2 ^ math.min(times - 1, 8) - 1)
  redis.call('ZADD', keys.waiting, int(now + later_ms), a.job_id)
end
return { 'noted' }
