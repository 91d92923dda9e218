-- fetched: a caller has got the job's result. Idempotent.
-- Returns {"noted"} · {"gone"}: the job has left
local a, invalid = arguments('job_id', { 'job' })
if not a then
  return invalid
end
if redis.call('EXISTS', keys.job) == 0 then
  return { 'gone' }
end
redis.call('HSET', keys.job, 'fetched', '1')
return { 'noted' }
