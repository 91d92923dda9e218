-- retry: an operator lets a dead letter run again, with its counts at zero. Idempotent under op.
-- Returns {"retried", woken id, ...}: their messages have to be sent · {"alive"}: not a dead letter · {"gone"}: no payload
local a, invalid = arguments('job_id op lane slots# job_ttl_s#', OF_JOB)
if not a then
  return invalid
end
local job = record('state', 'op_retry', 'priority', 'window_ms', 'tenant', 'attempt', 'trace_id', 'bytes', 'kept', 'result_blob',
  'result_bytes', 'plan', 'image')
if not job.state then
  redis.call('ZREM', keys.dead, a.job_id)
  return { 'gone' }
end
if job.op_retry == a.op then
  return { 'retried', a.job_id }
end
if not redis.call('ZSCORE', keys.dead, a.job_id) then
  return { 'alive' }
end
if redis.call('EXISTS', keys.spec) == 0 then
  return { 'gone' }
end
local lane, at_us = look(a), now_us()
local before = announced(lane)
local now = math.floor(at_us / 1000)
local expires_ms = int(now + tonumber(job.window_ms))
-- A job that failed through our fault stays free when it is tried again: no money is held or taken.
local rank = int(PRIORITIES[job.priority] + at_us)
redis.call('HDEL', keys.job, 'outcome', 'finished_ms', 'cancel', 'worker', 'lent', 'kept', 'result_blob', 'result_bytes', 'fetched', 'losses', 'faults',
  'failures')
redis.call('HSET', keys.job, 'state', 'queued',
  'rank', rank, 'queued_ms', int(now), 'expires_ms', expires_ms, 'op_retry', a.op)
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
redis.call('EXPIRE', keys.spec, int(a.job_ttl_s))
redis.call('DEL', keys.result)
local result_bytes = tonumber(job.result_bytes or '0')
store_bytes(lane, -result_bytes)
free_blobs(job.result_blob or '', result_bytes, job.tenant)
redis.call('ZREM', keys.dead, a.job_id)
redis.call('LREM', keys.kept_dead, 0, a.job_id .. ' ' .. job.kept)
lane.held = lane.held + tonumber(job.bytes or '0')
lane.kept = lane.kept - tonumber(job.kept or '0')
write_account(lane)
redis.call('ZADD', keys.ready, rank, a.job_id)
lane.ready = lane.ready + 1
redis.call('ZADD', keys.deadlines, expires_ms, a.job_id)
redis.call('ZADD', keys.line, expires_ms, a.job_id)
emit('queued', a.job_id, now, job)
return reply('retried', woken(a, lane, before, true))
