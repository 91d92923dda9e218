-- Prepended to every script of this folder by ledger/store.py.
--
-- Job hash <prefix>:job:<id>
--   state        queued | running | succeeded | failed | cancelled | rejected
--   tenant level priority trace_id digest submitted       written once, by admit
--   attempt      the fence: raised by every claim; a write under another attempt is refused
--   losses       attempts that ended with a lost worker
--   worker       who holds (or last held) the lease
--   cancel       "1" once a running job was asked to stop
--   admitted_ms queued_ms started_ms finished_ms           the server's clock
--   outcome      set with the terminal state
--   op_claim op_finish op_release                          last operation id of each kind: a resent
--                                                          script finds its own id and changes nothing

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Integers leave Lua as %d: some servers print round doubles in scientific notation.
local function int(n)
  return string.format('%d', n)
end

local function is_terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'rejected'
end

-- The one place that writes events, so that every one carries the same fields.
local function emit(events_key, kept, kind, job_key, job_id, at_ms)
  local job = redis.call('HMGET', job_key, 'tenant', 'attempt', 'outcome', 'worker', 'trace_id')
  redis.call('XADD', events_key, 'MAXLEN', '~', kept, '*',
    'type', kind, 'job_id', job_id, 'at_ms', int(at_ms), 'tenant', job[1],
    'attempt', job[2], 'outcome', job[3] or '', 'worker', job[4] or '', 'trace_id', job[5])
end

-- The one way a job ends: state, result, event, notification and clean-up in a single step.
-- keys: job spec result waiting leases events; the payload is kept only when the fault was ours.
local function close(keys, job_id, state, outcome, result, args, at_ms)
  redis.call('HSET', keys.job, 'state', state, 'outcome', outcome, 'finished_ms', int(at_ms))
  redis.call('SET', keys.result, result, 'EX', args.result_ttl_s)
  redis.call('EXPIRE', keys.job, args.result_ttl_s)
  redis.call('ZREM', keys.waiting, job_id)
  redis.call('ZREM', keys.leases, job_id)
  if outcome == 'worker_lost' or outcome == 'sandbox_error' then
    redis.call('EXPIRE', keys.spec, args.result_ttl_s)
  else
    redis.call('DEL', keys.spec)
  end
  local kind = 'agent.run.' .. state
  emit(keys.events, args.events_kept, kind, keys.job, job_id, at_ms)
  redis.call('PUBLISH', args.channel, state)
end

-- Back among the waiting, in the one shape that release and reap share.
local function requeue(keys, job_id, at_ms)
  redis.call('HSET', keys.job, 'state', 'queued', 'queued_ms', int(at_ms))
  redis.call('ZREM', keys.leases, job_id)
  redis.call('ZADD', keys.waiting, int(at_ms), job_id)
end
