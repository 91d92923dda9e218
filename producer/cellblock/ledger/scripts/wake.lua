-- wake: make a delayed job ready when its time has come. Idempotent.
-- Returns {"woken", woken id, ...}: their messages have to be sent · {"gone"}: it ended meanwhile · {"live"}: not yet
local a, invalid = arguments('job_id lane slots#', OF_JOB)
if not a then
  return invalid
end
local now = now_ms()
local due = redis.call('ZSCORE', keys.delayed, a.job_id)
if due and tonumber(due) > now then
  return { 'live' }
end
redis.call('ZREM', keys.delayed, a.job_id)
local job = record('state', 'rank')
if not due or job.state ~= 'queued' then
  return { 'gone' }
end
local lane = look(a)
local before = announced(lane)
redis.call('ZADD', keys.ready, job.rank, a.job_id)
lane.ready = lane.ready + 1
return reply('woken', woken(a, lane, before, true))
