-- finish: store the one effect of a job: result, state, event and notification, under the right fence only.
-- ARGV  blob: the name of the blob that holds the result, else "", and is removed where the job does not end with it;
--       blob_bytes: its size
--       charge: micros for what this attempt used; no more than the reserved micros are taken
--       counter: which failures are counted (faults: ours, failures: the job's own); up to `retries` of
--       them the job runs again instead, after backoff_ms, doubled each time up to backoff_max_ms, times
--       spread_percent. cancelled_result: for a fault of ours in a job that was asked to stop, else ""
-- Returns {"finished", woken id, ...} or {"retried", ...}: their messages have to be sent
--       · {"stale", state}: another attempt owns the job, or it has ended; nothing changed
--       · {"no room"}: the store is too full for a result of this length; nothing changed. Wait, or shorten it
local a, invalid = arguments('job_id fence# op state outcome result blob blob_bytes# charge# counter retries# backoff_ms# ' ..
  'backoff_max_ms# spread_percent# cancelled_result' .. COMMON, OF_JOB)
if not a then
  return invalid
end
if not is_terminal(a.state) or (a.counter ~= 'faults' and a.counter ~= 'failures') then
  return { 'invalid', 'state or counter' }
end
local job = whole_record()
local function leave_blob()
  free_unused_blobs(a.blob, a.blob_bytes, a.lane:match('^[^/]+'))
end
if job.op_finish == a.op and job.attempt == int(a.fence) then
  -- One message too many is harmless; a missing one would have to wait for the sweep.
  return { is_terminal(job.state) and 'finished' or 'retried', a.job_id }
end
if job.state ~= 'running' or job.attempt ~= int(a.fence) then
  leave_blob()
  return { 'stale', job.state or 'unknown' }
end
local now = now_ms()
if #a.result > LARGE_BYTES then
  local used, limit = pressure(a, now)
  if limit > 0 and (used + #a.result) * 100 > limit * TAKES_LARGE_BELOW then
    return { 'no room' }
  end
end
local more = { 'op_finish', a.op }
if job.cancel == '1' and a.counter == 'faults' then
  leave_blob()
  return reply('finished', close(a, job, 'cancelled', 'cancelled', a.cancelled_result, now, 0, more))
end
if a.retries > 0 and job.cancel ~= '1' then
  local failed = redis.call('HINCRBY', keys.job, a.counter, 1)
  if failed <= a.retries then
    local pause_ms = math.min(a.backoff_max_ms, a.backoff_ms * 2 ^ math.min(failed - 1, 30))
    local delay_ms = math.floor(pause_ms * a.spread_percent / 100)
    if a.counter == 'failures' and job.reserved then
      redis.call('HINCRBY', keys.job, 'charged', int(a.charge))
    end
    local ids = requeue(a, job, a.outcome, delay_ms, now, true, more)
    leave_blob()
    emit('retried', a.job_id, now, job, a.outcome, a.message)
    return reply('retried', ids)
  end
end
if a.blob ~= '' then
  for _, part in ipairs({ 'result_blob', a.blob, 'result_bytes', int(a.blob_bytes) }) do
    more[#more + 1] = part
  end
  name_blobs(a.blob)
  store_bytes({ stored = 0 }, a.blob_bytes)
end
return reply('finished', close(a, job, a.state, a.outcome, a.result, now, a.charge, more))
