-- admit: accept a job, all or nothing.
-- KEYS  job spec waiting events idempotency
-- ARGV  job_id digest manifest tenant level priority trace_id submitted
--       queue_depth job_ttl_s events_kept idempotent("1"|"0") forgotten
--       forgotten: the job an idempotency key still names although its record has expired, else ""
-- Returns {"admitted"|"known", job_id} · {"conflict", job_id} · {"full", waiting}
local job_key, spec_key, waiting_key, events_key, idem_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job_id, digest = ARGV[1], ARGV[2]

if ARGV[12] == '1' then
  local known = redis.call('GET', idem_key)
  if known then
    local known_id, known_digest = known:match('^(%S+) (%S+)$')
    if known_id ~= ARGV[13] then
      return { known_digest == digest and 'known' or 'conflict', known_id }
    end
  end
end
if redis.call('EXISTS', job_key) == 1 then
  local same = redis.call('HGET', job_key, 'digest') == digest
  return { same and 'known' or 'conflict', job_id }
end
local waiting = redis.call('ZCARD', waiting_key)
if waiting >= tonumber(ARGV[9]) then
  return { 'full', int(waiting) }
end

local now = now_ms()
redis.call('HSET', job_key, 'state', 'queued', 'digest', digest, 'tenant', ARGV[4], 'level', ARGV[5],
  'priority', ARGV[6], 'trace_id', ARGV[7], 'submitted', ARGV[8], 'attempt', '0', 'losses', '0',
  'admitted_ms', int(now), 'queued_ms', int(now))
redis.call('EXPIRE', job_key, ARGV[10])
redis.call('SET', spec_key, ARGV[3], 'EX', ARGV[10])
redis.call('ZADD', waiting_key, int(now), job_id)
if ARGV[12] == '1' then
  redis.call('SET', idem_key, job_id .. ' ' .. digest, 'EX', ARGV[10])
end
emit(events_key, ARGV[11], 'agent.run.queued', job_key, job_id, now)
return { 'admitted', job_id }
