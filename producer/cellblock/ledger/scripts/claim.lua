-- claim: turn the job that was picked into the one running attempt of its own.
-- KEYS  of_job
-- Returns {"claimed", fence, manifest, admitted_ms, started_ms, charged, lent}: micros of earlier attempts and of
--         nested runs
--       · {"again"}: somebody else was faster · {"passed"}: it has gone or is late, and will not be picked again
--       · {"orphan"}: it is nested in a job that does not run any more, and has to be ended
local a, invalid = arguments('job_id worker op lease_ms# job_ttl_s# lane slots# events_kept#')
if not a then
  return invalid
end

local job = redis.call('HMGET', keys.job, 'state', 'op_claim', 'attempt', 'admitted_ms', 'started_ms', 'expires_ms',
  'charged', 'lent')
if job[1] == 'running' and job[2] == a.op then
  return { 'claimed', job[3], redis.call('GET', keys.spec), job[4], job[5], job[7] or '0', job[8] or '0' }
end
if a.lane:find('/', 1, true) and redis.call('HGET', keys.parent, 'state') ~= 'running' and job[1] == 'queued' then
  redis.call('ZREM', keys.ready, a.job_id)
  seat(a)
  return { 'orphan' }
end
local now, manifest = now_ms(), redis.call('GET', keys.spec)
if not job[1] then
  leave(a)
  seat(a)
  return { 'passed' }
end
if job[1] ~= 'queued' or not manifest or now >= tonumber(job[6]) then
  -- It is late, and the reaper ends it: it must not stand before the others.
  redis.call('ZREM', keys.ready, a.job_id)
  seat(a)
  return { job[1] == 'queued' and 'passed' or 'again' }
end
if able(a) == 0 or not redis.call('ZSCORE', keys.ready, a.job_id) then
  seat(a)
  return { 'again' }
end

local fence = redis.call('HINCRBY', keys.job, 'attempt', 1)
redis.call('HSET', keys.job, 'state', 'running', 'worker', a.worker, 'op_claim', a.op, 'started_ms', int(now))
-- However long it waited: nothing of it may be forgotten while it runs.
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
redis.call('EXPIRE', keys.spec, int(a.job_ttl_s))
leave(a)
redis.call('SADD', keys.slots, a.job_id) -- without a bound too: one may be set while it runs
if a.lane:find('/', 1, true) then
  redis.call('EXPIRE', keys.slots, int(a.job_ttl_s)) -- nobody looks at a lane whose parent has gone
end
redis.call('ZADD', keys.leases, int(now + a.lease_ms), a.job_id)
serve(a)
seat(a)
emit(a.events_kept, 'started', a.job_id, now)
return { 'claimed', int(fence), manifest, job[4], int(now), job[7] or '0', job[8] or '0' }
