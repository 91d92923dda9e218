-- claim: turn a delivered message into the one running attempt of its job.
-- KEYS  job spec waiting leases events
-- ARGV  job_id worker op lease_ms events_kept
-- Returns {"claimed", fence, manifest, admitted_ms, started_ms}
--       · {"drop", why}   why: unknown | running | terminal | expired: acknowledge and do nothing
local job_key, spec_key, waiting_key, leases_key, events_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job_id, worker, op = ARGV[1], ARGV[2], ARGV[3]

local job = redis.call('HMGET', job_key, 'state', 'op_claim', 'attempt', 'admitted_ms', 'started_ms')
local state = job[1]
if not state then
  redis.call('ZREM', waiting_key, job_id)
  return { 'drop', 'unknown' }
end
if is_terminal(state) then
  return { 'drop', 'terminal' }
end
local manifest = redis.call('GET', spec_key)
if state == 'running' then
  if job[2] == op then
    return { 'claimed', job[3], manifest, job[4], job[5] }
  end
  -- An expired lease is the reaper's to judge, within a second: one place counts losses.
  return { 'drop', 'running' }
end
if not manifest then
  return { 'drop', 'expired' }
end

local now = now_ms()
local fence = redis.call('HINCRBY', job_key, 'attempt', 1)
redis.call('HSET', job_key, 'state', 'running', 'worker', worker, 'op_claim', op, 'started_ms', int(now))
redis.call('ZREM', waiting_key, job_id)
redis.call('ZADD', leases_key, int(now + tonumber(ARGV[4])), job_id)
emit(events_key, ARGV[5], 'agent.run.started', job_key, job_id, now)
return { 'claimed', int(fence), manifest, job[4], int(now) }
