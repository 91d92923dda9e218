-- admit: accept a job, all or nothing.
-- KEYS  of_job, idempotency
-- ARGV  below. forgotten: the job an idempotency key still names although its record has expired, else "".
-- Returns {"admitted"|"known", job_id} · {"conflict", job_id} · {"full", waiting}
local a, invalid = arguments('job_id digest manifest tenant level priority trace_id submitted queue_depth# ' ..
  'job_ttl_s# expires_ms# events_kept# idempotent# forgotten')
if not a then
  return invalid
end
local idempotency_key = KEYS[#KEY_NAMES + 1]

if a.idempotent == 1 then
  local known = redis.call('GET', idempotency_key)
  if known then
    local known_id, known_digest = known:match('^(%S+) (%S+)$')
    if known_id ~= a.forgotten then
      return { known_digest == a.digest and 'known' or 'conflict', known_id }
    end
  end
end
if redis.call('EXISTS', keys.job) == 1 then
  local same = redis.call('HGET', keys.job, 'digest') == a.digest
  return { same and 'known' or 'conflict', a.job_id }
end
local waiting = redis.call('ZCARD', keys.deadlines) -- queued, delayed and parked
if waiting >= a.queue_depth then
  return { 'full', int(waiting) }
end

local now = now_ms()
redis.call('HSET', keys.job, 'state', 'queued', 'digest', a.digest, 'tenant', a.tenant, 'level', a.level,
  'priority', a.priority, 'trace_id', a.trace_id, 'submitted', a.submitted, 'attempt', '0', 'losses', '0',
  'admitted_ms', int(now), 'queued_ms', int(now), 'expires_ms', int(now + a.expires_ms),
  'window_ms', int(a.expires_ms))
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
redis.call('SET', keys.spec, a.manifest, 'EX', int(a.job_ttl_s))
redis.call('ZADD', keys.waiting, int(now), a.job_id)
redis.call('ZADD', keys.deadlines, int(now + a.expires_ms), a.job_id)
if a.idempotent == 1 then
  redis.call('SET', idempotency_key, a.job_id .. ' ' .. a.digest, 'EX', int(a.job_ttl_s))
end
emit(a.events_kept, 'queued', a.job_id, now)
return { 'admitted', a.job_id }
