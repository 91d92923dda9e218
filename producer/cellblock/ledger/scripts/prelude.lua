-- Prepended to every script of this folder by ledger/scripts.py.
--
-- Job hash <prefix>:job:<id>
--   state        queued | parked | running | succeeded | failed | cancelled | rejected
--   tenant level priority trace_id digest submitted       written once, by admit
--   attempt      the fence: raised by every claim; a write under another attempt is refused
--   losses       attempts that ended with a lost worker
--   faults       attempts that ended through a fault of ours (sandbox_error)
--   failures     attempts that the job's own failure ended, counted where the job asks for retries
--   worker       who holds (or last held) the lease
--   cancel       "1" once a running job was asked to stop
--   admitted_ms queued_ms started_ms finished_ms           the server's clock
--   expires_ms   a job that has not started by then is rejected; window_ms after it was queued
--   republished  messages sent again since it was last queued
--   outcome      set with the terminal state
--   held reserved charged cost day   of jobs with a plan, in micros: what is held for one run of it, while it is
--                held, what attempts that are over have used of that, what was taken in the end; and the day
--                (since 1970) whose account has it
--   op_claim op_finish op_release op_retry op_drop         last operation id of each kind: a resent
--                                                          script finds its own id and changes nothing

-- What every script about one job declares, in the order of ledger/keys.py `of_job`.
local KEY_NAMES = { 'job', 'spec', 'result', 'attempts', 'waiting', 'delayed', 'leases', 'deadlines', 'slots',
  'parked', 'parked_tenants', 'dead', 'watermarks', 'ticked', 'events', 'account', 'line' }
local keys = {}
for i, name in ipairs(KEY_NAMES) do
  keys[name] = KEYS[i]
end

local ATTEMPTS_KEPT = 20
-- In one call; the next reaper goes on.
local PROMOTED_MAX = 1000
-- Longer numbers are no longer exact.
local DIGITS_MAX = 15

-- What ends or moves a job needs to know of the settings, after its own arguments.
local COMMON = ' tenant slots# hold_ms# job_ttl_s# result_ttl_s# dead_ttl_s# events_kept# channel'

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Integers leave Lua as %d: some servers print round doubles in scientific notation.
local function int(n)
  return string.format('%d', n)
end

-- A positive whole number, nil for anything else.
local function whole(text)
  return text and #text <= DIGITS_MAX and text:match('^%d+$') and tonumber(text) or nil
end

-- ARGV by name; a name with # is a whole number. A call that does not fit changes nothing:
-- returns nil and {"invalid", which}.
local function arguments(names)
  local given, at = {}, 0
  if #KEYS < #KEY_NAMES then
    return nil, { 'invalid', 'keys' }
  end
  for name, kind in names:gmatch('([%a_]+)(#?)') do
    at = at + 1
    local value = ARGV[at]
    if kind == '#' then
      value = whole(value)
    end
    if not value then
      return nil, { 'invalid', name }
    end
    given[name] = value
  end
  if at ~= #ARGV then
    return nil, { 'invalid', 'count' }
  end
  return given
end

local function is_terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'rejected'
end

-- The one place that writes events, so that every one carries the same fields.
local function emit(kept, kind, job_id, at_ms, outcome)
  local job = redis.call('HMGET', keys.job, 'tenant', 'attempt', 'outcome', 'worker', 'trace_id')
  redis.call('XADD', keys.events, 'MAXLEN', '~', int(kept), '*',
    'type', 'agent.run.' .. kind, 'job_id', job_id, 'at_ms', int(at_ms), 'tenant', job[1],
    'attempt', job[2], 'outcome', outcome or job[3] or '', 'worker', job[4] or '', 'trace_id', job[5])
end

-- One line of the history of an attempt that did not simply end: fence, worker, from, to, why.
local function note(why, at_ms, ttl_s)
  local job = redis.call('HMGET', keys.job, 'attempt', 'worker', 'started_ms')
  redis.call('RPUSH', keys.attempts, table.concat({ job[1], job[2] or '-', job[3] or '0', int(at_ms), why }, ' '))
  redis.call('LTRIM', keys.attempts, -ATTEMPTS_KEPT, -1)
  redis.call('EXPIRE', keys.attempts, int(ttl_s))
end

-- Account hash <prefix>:account:<tenant>: parallel, and per day <day>.runs, <day>.reserved, <day>.spent (micros).
-- How many the tenant may run at once: its plan's word, else the setting's.
local function slots_of(a)
  return tonumber(redis.call('HGET', keys.account, 'parallel') or a.slots)
end

-- Whether the tenant may run one more. A lease that has run out still counts until it is reaped; slots of
-- nobody, and those kept for a promoted job that was not claimed in time, are taken back here.
local function slot_free(slots, at_ms)
  if redis.call('ZCARD', keys.slots) < slots then
    return true
  end
  local held = redis.call('ZRANGE', keys.slots, 0, -1, 'WITHSCORES')
  for i = 1, #held, 2 do
    if tonumber(held[i + 1]) <= at_ms and not redis.call('ZSCORE', keys.leases, held[i]) then
      redis.call('ZREM', keys.slots, held[i])
    end
  end
  return redis.call('ZCARD', keys.slots) < slots
end

-- Parked jobs of the tenant that may run now, oldest first. Each keeps its slot for hold_ms, until it is
-- claimed. Returns flat pairs job_id, priority: they have to be published.
local function promote(a, at_ms)
  local woken, slots = {}, slots_of(a)
  while slots > 0 and #woken < 2 * PROMOTED_MAX and redis.call('ZCARD', keys.parked) > 0 and slot_free(slots, at_ms) do
    local priority, job_id = redis.call('ZPOPMIN', keys.parked)[1]:match('^(%a+) (.+)$')
    redis.call('ZADD', keys.slots, int(at_ms + a.hold_ms), job_id)
    redis.call('ZADD', keys.waiting, int(at_ms), job_id)
    woken[#woken + 1] = job_id
    woken[#woken + 1] = priority
  end
  if redis.call('ZCARD', keys.parked) == 0 then
    redis.call('SREM', keys.parked_tenants, a.tenant)
  end
  return woken
end

-- The one place that takes money: never more than was reserved, and the reservation is given back with it.
local function settle(charge)
  local job = redis.call('HMGET', keys.job, 'reserved', 'charged', 'day')
  if not job[1] then
    return
  end
  local cost = math.min(tonumber(job[1]), tonumber(job[2] or '0') + charge)
  redis.call('HINCRBY', keys.account, job[3] .. '.reserved', int(-tonumber(job[1])))
  redis.call('HINCRBY', keys.account, job[3] .. '.spent', int(cost))
  redis.call('HSET', keys.job, 'cost', int(cost))
  redis.call('HDEL', keys.job, 'reserved', 'charged')
end

local function reply(word, woken)
  table.insert(woken, 1, word)
  return woken
end

-- Out of every index. Its slot goes to the next of its tenant.
local function leave(job_id, priority)
  for _, index in ipairs({ keys.waiting, keys.delayed, keys.leases, keys.deadlines, keys.line, keys.slots }) do
    redis.call('ZREM', index, job_id)
  end
  redis.call('ZREM', keys.parked, priority .. ' ' .. job_id)
end

-- The one way a job ends: state, result, event, notification and clean-up in a single step. A job that
-- ended through our fault is a dead letter: its payload and history stay, to be looked at and tried again.
-- charge: micros, for what its last attempt used; nothing for what was our fault. Returns what that woke.
local function close(a, state, outcome, result, at_ms, charge)
  local dead = outcome == 'worker_lost' or outcome == 'sandbox_error'
  settle(dead and 0 or charge or 0)
  leave(a.job_id, redis.call('HGET', keys.job, 'priority'))
  redis.call('HSET', keys.job, 'state', state, 'outcome', outcome, 'finished_ms', int(at_ms))
  local kept_s = dead and a.dead_ttl_s or a.result_ttl_s
  redis.call('SET', keys.result, result, 'EX', int(kept_s))
  redis.call('EXPIRE', keys.job, int(kept_s))
  if dead then
    note(outcome, at_ms, kept_s)
    redis.call('EXPIRE', keys.spec, int(kept_s))
    redis.call('ZADD', keys.dead, int(at_ms), a.job_id)
  else
    redis.call('DEL', keys.spec, keys.attempts)
  end
  emit(a.events_kept, state, a.job_id, at_ms)
  redis.call('PUBLISH', a.channel, state)
  return promote(a, at_ms)
end

-- Back among the waiting, at once or after delay_ms, in the one shape that release, reap and finish share.
-- Returns what has to be published: the job itself unless it is delayed, and what its slot woke.
-- ran: it had started in time, so what comes of that is no fault of its caller's: it gets a new deadline.
local function requeue(a, why, delay_ms, at_ms, ran)
  local job = redis.call('HMGET', keys.job, 'priority', 'window_ms', 'expires_ms')
  local due_ms = at_ms + delay_ms
  local expires_ms = ran and int(due_ms + tonumber(job[2])) or job[3]
  note(why, at_ms, a.dead_ttl_s)
  leave(a.job_id, job[1])
  redis.call('HSET', keys.job, 'state', 'queued', 'queued_ms', int(due_ms), 'expires_ms', expires_ms,
    'republished', '0')
  -- However often it comes back: nothing of it may be forgotten before its deadline.
  local ttl_s = int(a.job_ttl_s + math.ceil(delay_ms / 1000))
  redis.call('EXPIRE', keys.job, ttl_s)
  redis.call('EXPIRE', keys.spec, ttl_s)
  redis.call('ZADD', keys.deadlines, expires_ms, a.job_id)
  redis.call('ZADD', keys.line, expires_ms, a.job_id)
  redis.call('ZADD', delay_ms > 0 and keys.delayed or keys.waiting, int(due_ms), a.job_id)
  local woken = promote(a, at_ms)
  if delay_ms == 0 then
    table.insert(woken, 1, job[1])
    table.insert(woken, 1, a.job_id)
  end
  return woken
end
