-- finish: the one effect of a job. Result, state, event, notification, under the right fence only.
-- KEYS  job spec result waiting leases events
-- ARGV  job_id fence op state outcome result result_ttl_s events_kept channel
-- Returns {"finished"} · {"stale", state}: another attempt owns the job, or it has ended; nothing changed
local keys = { job = KEYS[1], spec = KEYS[2], result = KEYS[3], waiting = KEYS[4], leases = KEYS[5], events = KEYS[6] }
local job_id, fence, op = ARGV[1], ARGV[2], ARGV[3]
local job = redis.call('HMGET', keys.job, 'state', 'attempt', 'op_finish')
if job[3] == op and job[2] == fence then
  return { 'finished' }
end
if job[1] ~= 'running' or job[2] ~= fence then
  return { 'stale', job[1] or 'unknown' }
end
redis.call('HSET', keys.job, 'op_finish', op)
close(keys, job_id, ARGV[4], ARGV[5], ARGV[6],
  { result_ttl_s = ARGV[7], events_kept = ARGV[8], channel = ARGV[9] }, now_ms())
return { 'finished' }
