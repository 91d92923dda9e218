-- retry: an operator lets a dead letter run again, with its counts at zero. Idempotent under op.
-- KEYS  of_job
-- Returns {"retried", woken id, ...}: their messages have to be sent · {"alive"}: it is no dead letter · {"gone"}: its payload is
local a, invalid = arguments('job_id op lane slots# job_ttl_s# events_kept#')
if not a then
  return invalid
end
local job = redis.call('HMGET', keys.job, 'state', 'op_retry', 'priority', 'window_ms')
if not job[1] then
  redis.call('ZREM', keys.dead, a.job_id)
  return { 'gone' }
end
if job[2] == a.op then
  return { 'retried', a.job_id }
end
if not redis.call('ZSCORE', keys.dead, a.job_id) then
  return { 'alive' }
end
if redis.call('EXISTS', keys.spec) == 0 then
  return { 'gone' }
end
local before, at_us = announced(a), now_us()
local now = math.floor(at_us / 1000)
local expires_ms = int(now + tonumber(job[4]))
-- What failed through our fault costs nothing, also when it is tried again: nothing is held, nothing is taken.
local place = int(PRIORITIES[job[3]] + at_us)
redis.call('HDEL', keys.job, 'outcome', 'finished_ms', 'cancel', 'worker', 'lent')
redis.call('HSET', keys.job, 'state', 'queued', 'losses', '0', 'faults', '0', 'failures', '0',
  'place', place, 'queued_ms', int(now), 'expires_ms', expires_ms, 'op_retry', a.op)
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
redis.call('EXPIRE', keys.spec, int(a.job_ttl_s))
redis.call('DEL', keys.result)
redis.call('ZREM', keys.dead, a.job_id)
redis.call('ZADD', keys.ready, place, a.job_id)
redis.call('ZADD', keys.deadlines, expires_ms, a.job_id)
redis.call('ZADD', keys.line, expires_ms, a.job_id)
emit(a.events_kept, 'queued', a.job_id, now)
return reply('retried', woken(a, before))
