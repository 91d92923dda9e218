-- reap: judge one job whose lease has run out: again into its queue, or ended as worker_lost.
-- KEYS  job spec result waiting leases events
-- ARGV  job_id loss_limit lost_result cancelled_result result_ttl_s events_kept channel
-- Returns {"live"} · {"gone"} · {"requeued"} · {"lost"} · {"cancelled"}
local keys = { job = KEYS[1], spec = KEYS[2], result = KEYS[3], waiting = KEYS[4], leases = KEYS[5], events = KEYS[6] }
local job_id, now = ARGV[1], now_ms()
local expiry = redis.call('ZSCORE', keys.leases, job_id)
if not expiry or tonumber(expiry) > now then
  return { 'live' }
end
local job = redis.call('HMGET', keys.job, 'state', 'cancel')
if job[1] ~= 'running' then
  redis.call('ZREM', keys.leases, job_id)
  return { 'gone' }
end
local args = { result_ttl_s = ARGV[5], events_kept = ARGV[6], channel = ARGV[7] }
local losses = redis.call('HINCRBY', keys.job, 'losses', 1)
if job[2] == '1' then
  close(keys, job_id, 'cancelled', 'cancelled', ARGV[4], args, now)
  return { 'cancelled' }
end
if losses >= tonumber(ARGV[2]) then
  close(keys, job_id, 'failed', 'worker_lost', ARGV[3], args, now)
  return { 'lost' }
end
requeue(keys, job_id, now)
return { 'requeued' }
