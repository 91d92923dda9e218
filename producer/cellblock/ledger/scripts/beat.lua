-- beat: one call of a worker process renews every lease it still owns and reports that the worker is alive.
-- KEYS  jobs: the record of each attempt
-- ARGV  status: what the worker reports about itself; attempts: the job id and the fence of each attempt
-- Returns one text per job, "<word> <micros lent to nested runs>". The word is held, cancel (held, and asked to
-- stop) or lost (stop, write nothing)
local a, invalid = arguments('worker lease_ms# worker_ttl_ms# status attempts...', { 'worker', 'leases', 'workers', 'jobs...' })
if not a then
  return invalid
end
if #a.attempts ~= 2 * #keys.jobs then
  return { 'invalid', 'attempts' }
end
local now = now_ms()
redis.call('SET', keys.worker, a.status, 'PX', int(a.worker_ttl_ms))
redis.call('ZADD', keys.workers, int(now + a.worker_ttl_ms), a.worker)
local replies = {}
for i, job_key in ipairs(keys.jobs) do
  local job_id, fence = a.attempts[2 * i - 1], a.attempts[2 * i]
  local job = redis.call('HMGET', job_key, 'state', 'attempt', 'cancel', 'lent')
  if job[1] == 'running' and job[2] == fence then
    redis.call('ZADD', keys.leases, int(now + a.lease_ms), job_id)
    replies[#replies + 1] = (job[3] == '1' and 'cancel ' or 'held ') .. (job[4] or '0')
  else
    replies[#replies + 1] = 'lost 0'
  end
end
return replies
