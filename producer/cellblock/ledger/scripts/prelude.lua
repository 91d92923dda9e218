-- Prepended to every script of this folder by ledger/scripts.py.
--
-- Job hash <prefix>:job:<id>
--   state        queued | running | succeeded | failed | cancelled | rejected
--   tenant level priority trace_id submitted              written once, by admit
--   attempt      the fence: raised by every claim; a write under another attempt is refused
--   losses       attempts that ended with a lost worker
--   faults       attempts that ended through a fault of ours (sandbox_error)
--   failures     attempts that the job's own failure ended, counted where the job asks for retries
--   worker       who holds (or last held) the lease
--   cancel       "1" once a running job was asked to stop
--   admitted_ms queued_ms started_ms finished_ms           the server's clock
--   expires_ms   a job that has not started by then is rejected; window_ms after it was queued
--   place        where it stands in its tenant's line: by priority, then by admission (µs)
--   outcome      set with the terminal state
--   parent       of a nested run: the job whose slot it runs in, and whose money it spends
--   plan reserved charged cost day   of jobs with a plan, in micros: what is held for it, what attempts that are over
--                have used of that, what was taken in the end; and the day (since 1970) whose account has it
--   result_ttl_s   how long its plan keeps its result
--   lent borrowed   of a parent: what its nested runs have of what was held for it; of a nested run: "1" while
--                what is held for it is its parent's
--   op_claim op_finish op_release op_retry op_drop         last operation id of each kind: a resent
--                                                          script finds its own id and changes nothing

-- What every script about one job declares, in the order of ledger/keys.py `of_job`.
local KEY_NAMES = { 'job', 'spec', 'result', 'attempts', 'ready', 'delayed', 'leases', 'deadlines', 'slots',
  'parked', 'turns', 'heads', 'shares', 'dead', 'ticked', 'events', 'account', 'line', 'parent',
  'nested' }
local keys = {}
for i, name in ipairs(KEY_NAMES) do
  keys[name] = KEYS[i]
end

local ATTEMPTS_KEPT = 20
-- Messages asked for in one reply; the sweep sees to the others.
local WOKEN_MAX = 1000
-- A place is a priority's first, plus microseconds since 1970: exact until 2065.
local PRIORITIES = { high = 0, normal = 3e15, low = 6e15 }
-- A turn is a plan's first, plus TURN for each claim so far, plus a place among those who came since then.
local TURNS = 2 ^ 45
local TURN = 1024
-- Accounts are kept for so many days, in seconds.
local ACCOUNT_S = 40 * 86400
-- What a plan of weight 1 moves on by with each claim.
local STRIDE = 10000
-- Longer numbers are no longer exact.
local DIGITS_MAX = 15

-- What ends or moves a job needs to know of the settings, after its own arguments.
local COMMON = ' lane slots# job_ttl_s# result_ttl_s# failed_ttl_s# dead_ttl_s# events_kept# channel'

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
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

-- Whose job is next. A message says that something waits, not what: the claim picks.
--
-- Of the plans with a job that could run, the one furthest behind by its weight (stride scheduling: shares hash,
-- pass:<plan>); of its tenants, the one served longest ago (turns, heads); of its jobs, the first by place (ready).
-- A tenant has a turn while it has a ready job and a slot for it; with a job and no slot it is parked.
-- As many messages are on their way as jobs could be claimed: whoever adds to that number has one sent.
--
-- Nested runs stand in a lane of their own, "tenant/parent", with one slot: their parent's, while that runs. What is said of
-- tenants here holds of lanes; only the account is the tenant's.

-- Account hash <prefix>:account:<tenant>: plan, parallel, and per day <day>.runs, <day>.reserved, <day>.spent (micros).
-- How many the lane may run at once: its plan's word, else the setting's; 0 is any number.
local function slots_of(a)
  if a.lane:find('/', 1, true) then
    return 1
  end
  return tonumber(redis.call('HGET', keys.account, 'parallel') or a.slots)
end

-- How many of the tenant's jobs could be claimed now.
local function able(a)
  local ready, slots = redis.call('ZCARD', keys.ready), slots_of(a)
  if slots == 0 or ready == 0 then
    return ready
  end
  return math.max(0, math.min(ready, slots - redis.call('SCARD', keys.slots)))
end

-- Those of them that messages were asked for.
local function announced(a)
  return redis.call('SISMEMBER', keys.parked, a.lane) == 1 and 0 or able(a)
end

-- The number of the tenant's plan, and the plan's name; jobs without one share one of weight 1.
local function plan_of()
  local plan = redis.call('HGET', keys.account, 'plan') or ''
  local number = redis.call('HGET', keys.shares, 'number:' .. plan)
  if not number then
    number = redis.call('HINCRBY', keys.shares, 'plans', 1)
    redis.call('HSET', keys.shares, 'number:' .. plan, int(number))
  end
  return tonumber(number), plan
end

local function turns_from(number)
  return number * TURNS
end

-- Behind all who wait for their turn, before the one that was served last: its next job comes after this one.
local function line_up(lane, number, plan)
  local first = turns_from(number)
  local share = redis.call('HMGET', keys.shares, 'turn', 'pass', 'pass:' .. plan)
  local came = math.min(TURN - 1, redis.call('HINCRBY', keys.shares, 'came', 1))
  if redis.call('ZCOUNT', keys.turns, int(first), '(' .. int(first + TURNS)) == 0 then
    -- A plan that had nothing to run has saved nothing up.
    redis.call('HSET', keys.shares, 'pass:' .. plan, int(math.max(tonumber(share[2] or 0), tonumber(share[3] or 0))))
  end
  redis.call('ZADD', keys.turns, int(first + TURN * tonumber(share[1] or 0) + came), lane)
end

-- To be called after every change of a tenant's line, slots or plan. Returns how many jobs could be claimed.
local function seat(a)
  local count = able(a)
  if count == 0 then
    redis.call('ZREM', keys.turns, a.lane)
    redis.call('HDEL', keys.heads, a.lane)
    if redis.call('ZCARD', keys.ready) > 0 then
      redis.call('SADD', keys.parked, a.lane)
    else
      redis.call('SREM', keys.parked, a.lane)
    end
    return 0
  end
  redis.call('SREM', keys.parked, a.lane)
  redis.call('HSET', keys.heads, a.lane, redis.call('ZRANGE', keys.ready, 0, 0)[1])
  local number, plan = plan_of()
  local turn = redis.call('ZSCORE', keys.turns, a.lane)
  if not turn or math.floor(tonumber(turn) / TURNS) ~= number then
    redis.call('ZREM', keys.turns, a.lane)
    line_up(a.lane, number, plan)
  end
  return count
end

-- The tenant was served: its plan has had its share, and everyone else of the plan comes before it.
local function serve(a)
  local number, plan = plan_of()
  local share = redis.call('HMGET', keys.shares, 'pass', 'pass:' .. plan, 'weight:' .. plan)
  local pass = tonumber(share[2] or 0)
  redis.call('HSET', keys.shares, 'pass', int(math.max(tonumber(share[1] or 0), pass)),
    'pass:' .. plan, int(pass + math.floor(STRIDE / tonumber(share[3] or 1))))
  local turn = redis.call('HINCRBY', keys.shares, 'turn', 1)
  redis.call('HSET', keys.shares, 'came', '0')
  redis.call('ZADD', keys.turns, int(turns_from(number) + TURN * (turn + 1)), a.lane)
end

-- Seats the tenant. Returns the ids whose messages have to be sent: as many as could be claimed and could not before.
local function woken(a, before)
  local more = math.min(WOKEN_MAX, seat(a) - before)
  return more > 0 and redis.call('ZRANGE', keys.ready, 0, more - 1) or {}
end

-- The one place that takes money: never more than was reserved, and the reservation is given back with it.
local function settle(charge)
  local job = redis.call('HMGET', keys.job, 'reserved', 'charged', 'day', 'borrowed')
  if not job[1] then
    return
  end
  local held = tonumber(job[1])
  local cost = math.min(held, tonumber(job[2] or '0') + charge)
  local given_back = held
  if job[4] and redis.call('HEXISTS', keys.parent, 'reserved') == 1 then
    -- Its parent has not ended, and has the rest again.
    redis.call('HINCRBY', keys.parent, 'reserved', int(held - cost))
    redis.call('HINCRBY', keys.parent, 'lent', int(cost - held))
    given_back = cost
  end
  redis.call('HINCRBY', keys.account, job[3] .. '.reserved', int(-given_back))
  redis.call('HINCRBY', keys.account, job[3] .. '.spent', int(cost))
  redis.call('EXPIRE', keys.account, ACCOUNT_S)
  redis.call('HSET', keys.job, 'cost', int(cost))
  redis.call('HDEL', keys.job, 'reserved', 'charged', 'borrowed')
end

local function reply(word, ids)
  table.insert(ids, 1, word)
  return ids
end

-- Out of every index, and out of its slot, unless nested runs of its own still run: whoever starts some and ends
-- has not won slots by it. The reaper frees the slot when the last of them has ended (vacate).
local function leave(a)
  for _, index in ipairs({ keys.ready, keys.delayed, keys.leases, keys.deadlines, keys.line }) do
    redis.call('ZREM', index, a.job_id)
  end
  if slots_of(a) == 0 or redis.call('SCARD', keys.nested) == 0 then
    redis.call('SREM', keys.slots, a.job_id)
  end
end

-- The one way a job ends: state, result, event, notification and clean-up in a single step. A job that
-- ended through our fault is a dead letter: its payload and history stay, to be looked at and tried again.
-- charge: micros, for what its last attempt used; nothing for what was our fault. Returns what that woke.
local function close(a, state, outcome, result, at_ms, charge)
  local before = announced(a)
  local dead = outcome == 'worker_lost' or outcome == 'sandbox_error'
  settle(dead and 0 or charge or 0)
  leave(a)
  redis.call('HSET', keys.job, 'state', state, 'outcome', outcome, 'finished_ms', int(at_ms))
  local kept_s = tonumber(redis.call('HGET', keys.job, 'result_ttl_s') or a.result_ttl_s)
  if dead then
    kept_s = a.dead_ttl_s
  elseif state == 'failed' then -- somebody has to find out why
    kept_s = math.max(kept_s, a.failed_ttl_s)
  end
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
  return woken(a, before)
end

-- Back into its tenant's line, at once or after delay_ms, in the one shape that release, reap and finish share.
-- ran: it had started in time, so what comes of that is no fault of its caller's: it gets a new deadline and
-- keeps its place. Else its place is the last: a host that cannot run it tries the others first.
-- Returns what that woke.
local function requeue(a, why, delay_ms, at_ms, ran)
  local before = announced(a)
  local job = redis.call('HMGET', keys.job, 'priority', 'window_ms', 'expires_ms', 'place')
  local due_ms = at_ms + delay_ms
  local expires_ms = ran and int(due_ms + tonumber(job[2])) or job[3]
  local place = ran and job[4] or int(PRIORITIES[job[1]] + now_us())
  note(why, at_ms, a.dead_ttl_s)
  leave(a)
  redis.call('HSET', keys.job, 'state', 'queued', 'queued_ms', int(due_ms), 'expires_ms', expires_ms, 'place', place)
  -- However often it comes back: nothing of it may be forgotten before its deadline.
  local ttl_s = int(a.job_ttl_s + math.ceil(delay_ms / 1000))
  redis.call('EXPIRE', keys.job, ttl_s)
  redis.call('EXPIRE', keys.spec, ttl_s)
  redis.call('ZADD', keys.deadlines, expires_ms, a.job_id)
  redis.call('ZADD', keys.line, expires_ms, a.job_id)
  if delay_ms > 0 then
    redis.call('ZADD', keys.delayed, int(due_ms), a.job_id)
  else
    redis.call('ZADD', keys.ready, place, a.job_id)
  end
  return woken(a, before)
end
