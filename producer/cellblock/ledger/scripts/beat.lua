-- beat: one call per worker process renews every lease it still owns and says it is alive.
-- KEYS  worker leases workers job...               one job key per (job_id, fence) pair below
-- ARGV  worker lease_ms worker_ttl_ms status_json (job_id fence)...
-- Returns one word per job: held | cancel (held, and asked to stop) | lost (stop, write nothing); after a blank
-- what it lent to nested runs, in micros
local worker_key, leases_key, workers_key = KEYS[1], KEYS[2], KEYS[3]
local lease_ms, ttl_ms = whole(ARGV[2]), whole(ARGV[3])
if #KEYS < 3 or #ARGV ~= 2 * #KEYS - 2 then
  return { 'invalid', 'count' }
end
if not lease_ms or not ttl_ms then
  return { 'invalid', lease_ms and 'worker_ttl_ms' or 'lease_ms' }
end
local now = now_ms()
redis.call('SET', worker_key, ARGV[4], 'PX', int(ttl_ms))
redis.call('ZADD', workers_key, int(now + ttl_ms), ARGV[1])
local replies = {}
for i = 4, #KEYS do
  local job_id, fence = ARGV[2 * i - 3], ARGV[2 * i - 2]
  local job = redis.call('HMGET', KEYS[i], 'state', 'attempt', 'cancel', 'lent')
  if job[1] == 'running' and job[2] == fence then
    redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
    replies[#replies + 1] = (job[3] == '1' and 'cancel ' or 'held ') .. (job[4] or '0')
  else
    replies[#replies + 1] = 'lost 0'
  end
end
return replies
