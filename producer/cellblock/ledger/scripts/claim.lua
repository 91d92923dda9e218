-- claim: turn a delivered message into the one running attempt of its job.
-- KEYS  of_job
-- Returns {"claimed", fence, manifest, admitted_ms, started_ms}
--       · {"parked", job_id, priority, ...}: its tenant runs all it may; the pairs have to be published
--       · {"drop", why}: acknowledge and do nothing.
--         why: unknown | running | terminal | delayed (its time will come) | late (the reaper ends it)
local a, invalid = arguments('job_id worker op lease_ms# job_ttl_s# tenant slots# hold_ms# events_kept#')
if not a then
  return invalid
end

local job = redis.call('HMGET', keys.job,
  'state', 'op_claim', 'attempt', 'admitted_ms', 'started_ms', 'expires_ms', 'priority', 'queued_ms')
local state = job[1]
if not state then
  redis.call('ZREM', keys.waiting, a.job_id)
  return { 'drop', 'unknown' }
end
if is_terminal(state) then
  return { 'drop', 'terminal' }
end
if state == 'running' then
  if job[2] == a.op then
    return { 'claimed', job[3], redis.call('GET', keys.spec), job[4], job[5] }
  end
  -- An expired lease is the reaper's to judge, within a second: one place counts losses.
  return { 'drop', 'running' }
end
local now = now_ms()
if redis.call('ZSCORE', keys.delayed, a.job_id) then
  return { 'drop', 'delayed' }
end
local manifest = redis.call('GET', keys.spec)
if now >= tonumber(job[6]) or not manifest then
  return { 'drop', 'late' }
end

local priority, queued_ms = job[7], tonumber(job[8])
local slots = slots_of(a)
if slots > 0 then
  local kept = redis.call('ZSCORE', keys.slots, a.job_id)
  if not kept and state == 'parked' and not redis.call('ZSCORE', keys.parked, priority .. ' ' .. a.job_id) then
    -- Promoted, and its message took longer than its slot was kept: it takes that of the latest promoted, whose
    -- message is on its way too. Parked again, both could go round for ever.
    local latest = redis.call('ZRANGE', keys.slots, '+inf', '(0', 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
    kept = latest and redis.call('ZREM', keys.slots, latest)
  end
  -- Whoever was parked goes first, so a slot that is free while some are is not this job's.
  if not kept and (redis.call('ZCARD', keys.parked) > 0 or not slot_free(slots, now)) then
    redis.call('HSET', keys.job, 'state', 'parked')
    redis.call('ZREM', keys.waiting, a.job_id)
    redis.call('ZADD', keys.parked, job[4], priority .. ' ' .. a.job_id)
    redis.call('SADD', keys.parked_tenants, a.tenant)
    return reply('parked', promote(a, now))
  end
end
redis.call('ZADD', keys.slots, '0', a.job_id) -- without a bound too: one may be set while it runs
redis.call('ZREM', keys.parked, priority .. ' ' .. a.job_id)

local fence = redis.call('HINCRBY', keys.job, 'attempt', 1)
redis.call('HSET', keys.job, 'state', 'running', 'worker', a.worker, 'op_claim', a.op, 'started_ms', int(now))
-- However long it waited: nothing of it may be forgotten while it runs.
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
redis.call('EXPIRE', keys.spec, int(a.job_ttl_s))
redis.call('ZREM', keys.waiting, a.job_id)
redis.call('ZREM', keys.deadlines, a.job_id)
redis.call('ZREM', keys.line, a.job_id)
redis.call('ZADD', keys.leases, int(now + a.lease_ms), a.job_id)
-- Queues are first in, first out: what was queued well before this and still waits has lost its message.
if queued_ms > tonumber(redis.call('HGET', keys.watermarks, priority) or '0') then
  redis.call('HSET', keys.watermarks, priority, int(queued_ms))
end
emit(a.events_kept, 'started', a.job_id, now)
return { 'claimed', int(fence), manifest, job[4], int(now) }
