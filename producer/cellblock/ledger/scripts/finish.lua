-- finish: the one effect of a job. Result, state, event, notification, under the right fence only.
-- KEYS  of_job
-- ARGV  charge: micros for what this attempt used; at most what is reserved is taken
--       counter: which failures are counted (faults: ours, failures: the job's own); up to `retries` of
--       them the job runs again instead, after backoff_ms, doubled each time up to backoff_max_ms, times
--       spread_percent. cancelled_result: for a fault of ours in a job that was asked to stop, else ""
-- Returns {"finished", woken id, ...} or {"retried", ...}: their messages have to be sent
--       · {"stale", state}: another attempt owns the job, or it has ended; nothing changed
local a, invalid = arguments('job_id fence# op state outcome result charge# counter retries# backoff_ms# ' ..
  'backoff_max_ms# spread_percent# cancelled_result' .. COMMON)
if not a then
  return invalid
end
if not is_terminal(a.state) or (a.counter ~= 'faults' and a.counter ~= 'failures') then
  return { 'invalid', 'state or counter' }
end
local job = redis.call('HMGET', keys.job, 'state', 'attempt', 'op_finish', 'cancel')
if job[3] == a.op and job[2] == int(a.fence) then
  -- One message too many is harmless; one too few would be left to the sweep.
  return { is_terminal(job[1]) and 'finished' or 'retried', a.job_id }
end
if job[1] ~= 'running' or job[2] ~= int(a.fence) then
  return { 'stale', job[1] or 'unknown' }
end
local now = now_ms()
redis.call('HSET', keys.job, 'op_finish', a.op)
if job[4] == '1' and a.counter == 'faults' then
  return reply('finished', close(a, 'cancelled', 'cancelled', a.cancelled_result, now))
end
if a.retries > 0 and job[4] ~= '1' then
  local failed = redis.call('HINCRBY', keys.job, a.counter, 1)
  if failed <= a.retries then
    local pause_ms = math.min(a.backoff_max_ms, a.backoff_ms * 2 ^ math.min(failed - 1, 30))
    local delay_ms = math.floor(pause_ms * a.spread_percent / 100)
    if a.counter == 'failures' and redis.call('HEXISTS', keys.job, 'reserved') == 1 then
      redis.call('HINCRBY', keys.job, 'charged', int(a.charge))
    end
    local woken = requeue(a, a.outcome, delay_ms, now, true)
    emit(a.events_kept, 'retried', a.job_id, now, a.outcome)
    return reply('retried', woken)
  end
end
return reply('finished', close(a, a.state, a.outcome, a.result, now, a.charge))
