-- claim: turn the picked job into its one running attempt. The caller reads its manifest in the same round trip.
-- Returns {"claimed", fence, admitted_ms, started_ms, charged, lent, result_ttl_s}: micros of earlier attempts and of
--         nested runs; how long its plan keeps its result, 0 without a plan
--       · {"again"}: another worker was faster · {"passed"}: it has gone or is late, and will not be picked again
--       · {"orphan"}: the job it is nested in does not run any more, so the caller has to end it
local a, invalid = arguments('job_id worker op lease_ms# job_ttl_s# lane slots#', OF_JOB)
if not a then
  return invalid
end

local job = record('state', 'op_claim', 'attempt', 'admitted_ms', 'started_ms', 'expires_ms', 'charged', 'lent',
  'tenant', 'trace_id', 'queued_ms', 'result_ttl_s', 'plan', 'image')
if job.state == 'running' and job.op_claim == a.op then
  return { 'claimed', job.attempt, job.admitted_ms, job.started_ms, job.charged or '0', job.lent or '0',
    job.result_ttl_s or '0' }
end
local nested = a.lane:find('/', 1, true)
if nested and job.state == 'queued' and redis.call('HGET', keys.parent, 'state') ~= 'running' then
  redis.call('ZREM', keys.ready, a.job_id)
  refresh_lane(a, look(a))
  return { 'orphan' }
end
local now = now_ms()
if not job.state then
  local lane = look(a)
  leave(a, lane)
  redis.call('ZREM', keys.leases, a.job_id)
  refresh_lane(a, lane)
  return { 'passed' }
end
if job.state ~= 'queued' or now >= tonumber(job.expires_ms) then
  -- It is late. The reaper ends it; until then it must not block the jobs behind it.
  redis.call('ZREM', keys.ready, a.job_id)
  refresh_lane(a, look(a))
  return { job.state == 'queued' and 'passed' or 'again' }
end
local lane = look(a, nil, true)
if able(lane) == 0 or redis.call('ZREM', keys.ready, a.job_id) == 0 then
  refresh_lane(a, lane)
  return { 'again' }
end

local fence = int(tonumber(job.attempt) + 1)
redis.call('HSET', keys.job, 'state', 'running', 'worker', a.worker, 'op_claim', a.op, 'started_ms', int(now),
  'attempt', fence)
-- Redis must not expire its keys while it runs, however long it waited before.
if (now - tonumber(job.queued_ms)) * 2 > 1000 * a.job_ttl_s then
  redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
  redis.call('EXPIRE', keys.spec, int(a.job_ttl_s))
end
redis.call('ZREM', keys.deadlines, a.job_id)
redis.call('ZREM', keys.line, a.job_id)
lane.taken = lane.taken + redis.call('SADD', keys.slots, a.job_id) -- without a bound too: it can be set while the job runs
if nested then
  redis.call('EXPIRE', keys.slots, int(a.job_ttl_s)) -- no upkeep visits a lane whose parent has gone
end
redis.call('ZADD', keys.leases, int(now + a.lease_ms), a.job_id)
redis.call('HINCRBY', keys.account, 'held_bytes', LARGE_BYTES)
lane.ready = lane.ready - 1

-- The tenant was served: its plan's pass moves on, and the tenant goes behind all other tenants of the plan.
local plan = lane.plan
local share = redis.call('HMGET', keys.plan_shares, 'number:' .. plan, 'pass', 'pass:' .. plan, 'weight:' .. plan, 'turn')
local number = tonumber(share[1] or new_number(plan))
local pass, turn = tonumber(share[3] or 0), tonumber(share[5] or 0) + 1
redis.call('HSET', keys.plan_shares, 'pass', int(math.max(tonumber(share[2] or 0), pass)),
  'pass:' .. plan, int(pass + math.floor(STRIDE / tonumber(share[4] or 1))), 'turn', int(turn), 'came', '0')
if able(lane) > 0 then
  redis.call('ZADD', keys.lane_turns, int(turns_from(number) + TURN * (turn + 1)), a.lane)
  redis.call('HSET', keys.lane_heads, a.lane, redis.call('ZRANGE', keys.ready, 0, 0)[1])
else
  refresh_lane(a, lane, 1)
end
job.attempt, job.worker = fence, a.worker
emit('started', a.job_id, now, job)
return { 'claimed', fence, job.admitted_ms, int(now), job.charged or '0', job.lent or '0', job.result_ttl_s or '0' }
