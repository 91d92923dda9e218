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
--   rank         where it stands in its tenant's line: by priority, then by admission (µs)
--   outcome      set with the terminal state
--   parent       of a nested run: the job whose slot it runs in, and whose money it spends
--   plan reserved charged cost day   of jobs with a plan, in micros: what is held for it, what attempts that are over
--                have used of that, what was taken in the end; and the day (since 1970) whose account has it
--   result_ttl_s   how long its plan keeps its result
--   bytes kept     what it takes of the store while it has not ended, and since it has
--   idempotency digest   the key it was accepted under, and the digest of what was asked
--   blobs result_blob   names of its payload and of its result in the blob store
--   lent borrowed   of a parent: what its nested runs have of what was held for it; of a nested run: "1" while
--                what is held for it is its parent's
--   op_claim op_finish op_release op_retry op_drop         last operation id of each kind: a resent
--                                                          script finds its own id and changes nothing

-- The keys of a script about one job: what ledger/keys.py `of_job` gives.
local OF_JOB = { 'job', 'spec', 'result', 'attempts', 'ready', 'delayed', 'leases', 'deadlines', 'slots',
  'parked', 'lane_turns', 'lane_heads', 'plan_shares', 'dead', 'upkeep', 'events', 'account', 'line', 'parent',
  'nested', 'kept', 'kept_failed', 'kept_dead', 'keepers', 'crowded', 'pressure', 'blobs' }
-- The keys of this call, by name.
local keys = {}

local ATTEMPTS_KEPT = 20
-- The most messages that one reply asks for; the sweep sends the others.
local WOKEN_MAX = 1000
-- A rank is the priority's first rank, plus microseconds since 1970: exact until 2065.
local PRIORITIES = { high = 0, normal = 3e15, low = 6e15 }
-- A turn is the plan's first turn, plus TURN for each claim so far, plus a number for each lane that came since then.
local TURNS = 2 ^ 45
local TURN = 1024
-- How long accounts are kept: 40 days, in seconds.
local ACCOUNT_S = 40 * 86400
-- How far each claim moves the pass of a plan of weight 1.
local STRIDE = 10000
-- Lua's doubles hold every whole number of up to 15 digits exactly.
local DIGITS_MAX = 15
-- The upkeep's leader removes ended jobs in time. Without a leader, Redis expires them this much later.
local UNLED_S = 86400
-- Bytes of a job beside its manifest, or its result: record, indices, events (tests/bench/ledger_costs.py).
local RECORD_BYTES = 900
local RECORD_KEPT_BYTES = 700
-- Bytes of a job's message (producer/cellblock/queue.py), with what the queue adds.
local MESSAGE_BYTES = 900
-- A result longer than this waits for room. A running job's result is counted as this many bytes.
local LARGE_BYTES = 32768
-- The notification to waiting callers carries a result of at most this many bytes.
local TOLD_BYTES = 16384
-- Percents of the store's memory (ledger/pressure.py).
local ADMITS_BELOW = 85
local TAKES_LARGE_BELOW = 95
-- A measurement older than this is repeated.
local MEASURED_MS = 1500

-- The arguments from the settings that every script which ends or moves a job takes, after its own.
local COMMON = ' lane slots# job_ttl_s# kept_s# kept_failed_s# kept_dead_s# looked_at_s# memory_bytes# measures# channel'

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

-- The whole number that a text of digits is; nil for anything else.
local function whole(text)
  return text and #text <= DIGITS_MAX and text:match('^%d+$') and tonumber(text) or nil
end

-- A script's declaration: its ARGV by name, a whole number where a # follows, and the names of its KEYS: `key_names`,
-- then `more`. `name...`, last in either, takes the rest as a list. Callers read the order from this call
-- (ledger/scripts.py). A call that does not fit changes nothing: returns nil and {"invalid", which}.
local function arguments(names, key_names, more)
  local at = 0
  for _, part in ipairs(more and { key_names, more } or { key_names }) do
    for _, name in ipairs(part) do
      at = at + 1
      keys[name] = KEYS[at]
    end
  end
  local last = more or key_names
  local list = last[#last]:match('^(.*)%.%.%.$')
  if #KEYS < (list and at - 1 or at) or (not list and #KEYS > at) then
    return nil, { 'invalid', 'keys' }
  end
  if list then
    keys[list] = { unpack(KEYS, at) }
  end
  local given, rest = {}, false
  at = 0
  for name, kind in names:gmatch('([%a_]+)([#.]*)') do
    at = at + 1
    local value = ARGV[at]
    if kind == '#' then
      value = whole(value)
    elseif kind == '...' then
      value, rest = { unpack(ARGV, at) }, true
    end
    if not value then
      return nil, { 'invalid', name }
    end
    given[name] = value
  end
  if not rest and at ~= #ARGV then
    return nil, { 'invalid', 'count' }
  end
  return given
end

-- Returns fields of the job's record by name; a missing field is nil.
local function record(...)
  local names, found = { ... }, {}
  local values = redis.call('HMGET', keys.job, ...)
  for i, name in ipairs(names) do
    found[name] = values[i] or nil
  end
  return found
end

-- Returns the fields of its record that ending or requeuing a job needs.
local function whole_record()
  return record('state', 'attempt', 'cancel', 'tenant', 'trace_id', 'worker', 'started_ms', 'priority', 'rank',
    'window_ms', 'expires_ms', 'plan', 'reserved', 'charged', 'day', 'borrowed', 'result_ttl_s', 'bytes',
    'op_finish', 'op_release', 'level', 'submitted', 'admitted_ms', 'blobs', 'idempotency')
end

local function is_terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'rejected'
end

-- The one place that writes events, so that all carry the same fields. job: fields of its record.
local function emit(kind, job_id, at_ms, job, outcome)
  redis.call('XADD', keys.events, '*', 'type', 'agent.run.' .. kind, 'job_id', job_id, 'at_ms', int(at_ms),
    'tenant', job.tenant, 'attempt', job.attempt, 'outcome', outcome or '', 'worker', job.worker or '',
    'trace_id', job.trace_id)
end

-- Appends to the job's history an attempt that did not simply end: fence, worker, from, to (ms), why.
local function note(job, why, at_ms, ttl_s)
  local line = { job.attempt, job.worker or '-', job.started_ms or '0', int(at_ms), why }
  redis.call('RPUSH', keys.attempts, table.concat(line, ' '))
  redis.call('LTRIM', keys.attempts, -ATTEMPTS_KEPT, -1)
  redis.call('EXPIRE', keys.attempts, int(ttl_s))
end

-- Measures how full the store is and returns used and limit in bytes; 0 means no limit. The hash `pressure` has at_ms,
-- used_bytes, limit_bytes, and taken_bytes: an estimate of what was admitted since.
local function measure(memory_bytes, at_ms)
  local said = redis.call('INFO', 'memory')
  local function figure(name)
    return tonumber(said:match(name .. ':(%d+)') or '0')
  end
  local limit = figure('maxmemory')
  if limit == 0 or (memory_bytes > 0 and memory_bytes < limit) then
    limit = memory_bytes
  end
  -- As Redis itself counts against maxmemory.
  local used = figure('used_memory') - figure('mem_not_counted_for_evict')
  redis.call('HSET', keys.pressure, 'at_ms', int(at_ms), 'used_bytes', int(used), 'limit_bytes', int(limit),
    'taken_bytes', '0')
  return used, limit
end

-- Returns the used bytes and the limit. The upkeep's leader measures; without a leader, the calling script does.
local function pressure(a, at_ms)
  if a.measures == 0 then
    return 0, 0
  end
  local found = redis.call('HMGET', keys.pressure, 'at_ms', 'used_bytes', 'taken_bytes', 'limit_bytes')
  if not found[1] or at_ms - tonumber(found[1]) > MEASURED_MS or at_ms < tonumber(found[1]) then
    return measure(a.memory_bytes, at_ms)
  end
  return tonumber(found[2]) + tonumber(found[3]), tonumber(found[4])
end

-- Whose job is next. A message says that something waits, not what: the claim picks.
--
-- The order: first the plan furthest behind by its weight, among plans with a job that could run (stride scheduling: hash
-- plan_shares, pass:<plan>), then its tenant served longest ago (lane_turns, lane_heads), then the first by rank (ready).
-- A tenant has a turn while it has a ready job and a slot for it; with a job and no slot it is parked.
-- There is one message on its way for each job that could be claimed: a script that adds to these jobs has one sent.
--
-- Nested runs stand in a lane of their own, "tenant/parent", with one slot: their parent's, while the parent runs. What is
-- said about tenants here holds for lanes; only the account belongs to the tenant.

-- Account hash <prefix>:account:<tenant>: plan, parallel, bytes_held (its plan's limits); held_bytes: of its jobs that
-- have not ended; kept_bytes: of its ended jobs; limit_bytes: the limit of both together; list:<s> for each of its lists
-- of ended jobs; per day <day>.runs, <day>.reserved, <day>.spent (micros).

-- Reads once everything that decisions rest on: the tenant's plan and bytes, its ready jobs and slots, and what it used
-- on the day. Code that changes one of these in Redis also changes it in this table. slots: how many jobs the lane may
-- run at once, from its plan, else from the setting; 0 is any number. has_turn: the lane was picked, so it is not parked.
local function look(a, day, has_turn)
  local account = redis.call('HMGET', keys.account, 'plan', 'parallel', 'held_bytes', 'kept_bytes', 'bytes_held', 'limit_bytes',
    day and day .. '.reserved' or 'plan', day and day .. '.spent' or 'plan')
  local nested = a.lane:find('/', 1, true)
  local lane = {
    plan = account[1] or '',
    slots = nested and 1 or tonumber(account[2] or a.slots),
    held = tonumber(account[3] or 0),
    kept = tonumber(account[4] or 0),
    most = tonumber(account[5] or 0),
    limit = tonumber(account[6] or 0),
    day = day,
    reserved = day and tonumber(account[7] or 0),
    spent = day and tonumber(account[8] or 0),
    ready = redis.call('ZCARD', keys.ready),
    taken = 0,
    parked = false,
  }
  if lane.slots > 0 then
    lane.taken = redis.call('SCARD', keys.slots)
  end
  if lane.ready > 0 and not has_turn then
    lane.parked = redis.call('SISMEMBER', keys.parked, a.lane) == 1
  end
  return lane
end

-- How many of the lane's jobs could be claimed now.
local function able(lane)
  if lane.slots == 0 then
    return lane.ready
  end
  return math.max(0, math.min(lane.ready, lane.slots - lane.taken))
end

-- The number of these jobs that messages were asked for. It is above 0 exactly while the lane has a turn.
local function announced(lane)
  return lane.parked and 0 or able(lane)
end

-- Gives a plan its number. Jobs without a plan share one plan of weight 1, named "".
local function new_number(plan)
  local number = redis.call('HINCRBY', keys.plan_shares, 'plans', 1)
  redis.call('HSET', keys.plan_shares, 'number:' .. plan, int(number))
  return number
end

local function turns_from(number)
  return number * TURNS
end

-- Puts the lane behind all lanes that wait for their turn, and before the next job of the lane that was served last.
-- A lane that already has a turn in this plan keeps it.
local function line_up(lane_name, plan)
  local share = redis.call('HMGET', keys.plan_shares, 'number:' .. plan, 'turn', 'pass', 'pass:' .. plan, 'came')
  local first = turns_from(tonumber(share[1] or new_number(plan)))
  local turn = redis.call('ZSCORE', keys.lane_turns, lane_name)
  if turn then
    if turns_from(math.floor(tonumber(turn) / TURNS)) == first then
      return
    end
    redis.call('ZREM', keys.lane_turns, lane_name)
  end
  local came, pass = math.min(TURN - 1, tonumber(share[5] or 0) + 1), tonumber(share[4] or 0)
  if redis.call('ZCOUNT', keys.lane_turns, int(first), '(' .. int(first + TURNS)) == 0 then
    pass = math.max(tonumber(share[3] or 0), pass) -- a plan gains nothing while it has nothing to run
  end
  redis.call('HSET', keys.plan_shares, 'pass:' .. plan, int(pass), 'came', int(came))
  redis.call('ZADD', keys.lane_turns, int(first + TURN * tonumber(share[2] or 0) + came), lane_name)
end

-- Call this after every change of a lane's jobs, slots or plan; `lane` has the new ones. was: the number of jobs that
-- messages had been asked for; nil if the lane's indices might be wrong. changed: true if other jobs are ready now,
-- 'plan' if its plan changed. Returns the number of claimable jobs, and the first of them where that is known.
local function refresh_lane(a, lane, was, changed)
  local count = able(lane)
  if count == 0 then
    if was ~= 0 then
      redis.call('ZREM', keys.lane_turns, a.lane)
      redis.call('HDEL', keys.lane_heads, a.lane)
    end
    if lane.ready > 0 then
      redis.call('SADD', keys.parked, a.lane)
    elseif was == nil or lane.parked then
      redis.call('SREM', keys.parked, a.lane)
    end
    return 0
  end
  if was == nil or lane.parked then
    redis.call('SREM', keys.parked, a.lane)
  end
  if was and was > 0 and not changed then
    return count
  end
  local first = redis.call('ZRANGE', keys.ready, 0, 0)[1]
  redis.call('HSET', keys.lane_heads, a.lane, first)
  if was == nil or was == 0 or changed == 'plan' then
    line_up(a.lane, lane.plan)
  end
  return count, first
end

-- Refreshes the lane. Returns the ids whose messages have to be sent: one for each job that became claimable.
local function woken(a, lane, before, changed)
  local count, first = refresh_lane(a, lane, before, changed)
  local more = math.min(WOKEN_MAX, count - before)
  if more == 1 and first then
    return { first }
  end
  return more > 0 and redis.call('ZRANGE', keys.ready, 0, more - 1) or {}
end

-- The one place that takes money: never more than was reserved. It also gives the reservation back.
-- Returns the micros taken, nil for a job without a plan. Only `lane` changes: write_account writes the account.
local function settle(job, lane, charge)
  if not job.reserved then
    return nil
  end
  local held = tonumber(job.reserved)
  local cost = math.min(held, tonumber(job.charged or '0') + charge)
  local given_back = held
  if job.borrowed and redis.call('HEXISTS', keys.parent, 'reserved') == 1 then
    -- Its parent has not ended: the parent gets the rest back.
    redis.call('HINCRBY', keys.parent, 'reserved', int(held - cost))
    redis.call('HINCRBY', keys.parent, 'lent', int(cost - held))
    given_back = cost
  end
  lane.reserved = lane.reserved - given_back
  lane.spent = lane.spent + cost
  return cost
end

local function reply(word, ids)
  table.insert(ids, 1, word)
  return ids
end

-- Removes the job from every index, and from its slot unless its nested runs still run: a job must not gain slots by
-- starting some and ending. The reaper frees the slot when the last of them has ended (free_slot).
-- Returns whether the job was among the ready ones.
local function leave(a, lane, state)
  local was_ready = false
  if state == 'running' then
    redis.call('ZREM', keys.leases, a.job_id)
  else
    was_ready = redis.call('ZREM', keys.ready, a.job_id) == 1
    for _, index in ipairs({ keys.delayed, keys.deadlines, keys.line }) do
      redis.call('ZREM', index, a.job_id)
    end
    lane.ready = lane.ready - (was_ready and 1 or 0)
  end
  if lane.slots == 0 or redis.call('SCARD', keys.nested) == 0 then
    lane.taken = lane.taken - redis.call('SREM', keys.slots, a.job_id)
  end
  return was_ready
end

-- Returns the bytes that a tenant's jobs may take of the store: the lower of its plan's limit and its share; 0 is no limit.
local function most_bytes(lane, tenant_percent, limit)
  local share = math.floor(limit * tenant_percent / 100)
  if lane.most > 0 and share > 0 then
    return math.min(lane.most, share)
  end
  return math.max(lane.most, share)
end

-- The bytes that names add to a job: they stand in its record, its keys and its events. A name of more than 64 bytes also
-- makes Redis keep the record in a larger encoding.
local function name_bytes(tenant, idempotency)
  local long = math.max(#tenant, #idempotency) > 64
  return 6 * #tenant + (idempotency ~= '' and 2 * #idempotency + 350 or 0) + (long and 1600 or 0)
end

-- Writes the tenant's bytes and its money of the day from `lane`. more: fields to write with them.
local function write_account(lane, more)
  local fields = more or {}
  for _, part in ipairs({ 'limit_bytes', int(lane.limit), 'held_bytes', int(math.max(0, lane.held)), 'kept_bytes',
    int(lane.kept) }) do
    fields[#fields + 1] = part
  end
  if lane.day then
    for _, part in ipairs({ lane.day .. '.reserved', int(lane.reserved), lane.day .. '.spent', int(lane.spent) }) do
      fields[#fields + 1] = part
    end
  end
  redis.call('HSET', keys.account, unpack(fields))
end

-- One job more or fewer names these blobs (their names, separated by blanks). The sweep removes blobs that no job names.
local function name_blobs(names, more)
  for name in names:gmatch('%S+') do
    if redis.call('HINCRBY', keys.blobs, name, more) <= 0 then
      redis.call('HDEL', keys.blobs, name)
    end
  end
end

-- The fields that are not needed after a job has ended.
local GONE_OF_THE_DEAD = { 'reserved', 'charged', 'borrowed', 'op_claim' }
local GONE = { 'reserved', 'charged', 'borrowed', 'op_claim', 'rank', 'priority', 'window_ms', 'expires_ms', 'queued_ms',
  'faults', 'failures', 'result_ttl_s', 'bytes', 'day', 'lent', 'op_retry', 'blobs' }

-- What waiting callers get before the result: the fields of the record that belong to it (ledger/results.py).
local function told(job, outcome, at_ms, cost)
  return cjson.encode({ outcome = outcome, level = job.level, attempt = job.attempt, worker = job.worker,
    trace_id = job.trace_id, submitted = job.submitted, admitted_ms = job.admitted_ms, started_ms = job.started_ms,
    finished_ms = int(at_ms), cost = cost and int(cost) }) .. '\n'
end

-- Returns how long an ended job stays, in seconds, and its list. Jobs of one list stay equally long, so the list is in
-- the order in which they leave.
local function kept_where(a, state, dead)
  if dead then
    return a.kept_dead_s, keys.kept_dead
  elseif state == 'failed' then
    return a.kept_failed_s, keys.kept_failed
  end
  return a.kept_s, keys.kept
end

-- The one way a job ends: state, result, event, notification and clean-up in a single step. A job that ended
-- through our fault is a dead letter: its payload and history stay, for an operator to look at and to retry.
-- job: its whole record. charge: micros for what its last attempt used; an end through our fault is free. more: fields
-- to write with it. Returns the ids whose messages have to be sent.
local function close(a, job, state, outcome, result, at_ms, charge, more)
  local lane = look(a, job.reserved and job.day)
  local before = announced(lane)
  local dead = outcome == 'worker_lost' or outcome == 'sandbox_error'
  local cost = settle(job, lane, dead and 0 or charge or 0)
  local changed = leave(a, lane, job.state)
  local bytes = tonumber(job.bytes or '0')
  local kept = #result + RECORD_KEPT_BYTES + name_bytes(job.tenant, job.idempotency or '') + (dead and bytes or 0)
  local kept_s, list = kept_where(a, state, dead)
  local fields = more or {}
  for _, part in ipairs({ 'state', state, 'outcome', outcome, 'finished_ms', int(at_ms), 'kept', int(kept) }) do
    fields[#fields + 1] = part
  end
  if cost then
    fields[#fields + 1] = 'cost'
    fields[#fields + 1] = int(cost)
  end
  redis.call('HSET', keys.job, unpack(fields))
  redis.call('HDEL', keys.job, unpack(dead and GONE_OF_THE_DEAD or GONE))
  redis.call('SET', keys.result, result, 'EX', int(kept_s + UNLED_S))
  redis.call('EXPIRE', keys.job, int(kept_s + UNLED_S))
  if dead then
    note(job, outcome, at_ms, kept_s + UNLED_S)
    redis.call('EXPIRE', keys.spec, int(kept_s + UNLED_S))
    redis.call('ZADD', keys.dead, int(at_ms), a.job_id)
  else
    redis.call('DEL', keys.spec, keys.attempts)
    name_blobs(job.blobs or '', -1)
  end
  redis.call('RPUSH', list, a.job_id .. ' ' .. int(kept))
  local looked_at_ms = int(at_ms + 1000 * math.min(kept_s, a.looked_at_s))
  redis.call('ZADD', keys.keepers, 'LT', looked_at_ms, job.tenant .. ' ' .. int(kept_s))
  lane.held = lane.held - bytes - (job.state == 'running' and LARGE_BYTES or 0)
  lane.kept = lane.kept + kept
  -- list: finds this tenant's lists without a search through the lists of all tenants
  write_account(lane, { 'list:' .. int(kept_s), '1' })
  if lane.limit > 0 and lane.held + lane.kept > lane.limit then
    redis.call('ZADD', keys.crowded, 'GT', kept > LARGE_BYTES and int(kept) or 0, job.tenant)
  end
  if kept > LARGE_BYTES and a.measures == 1 then
    redis.call('HINCRBY', keys.pressure, 'taken_bytes', int(kept))
  end
  emit(state, a.job_id, at_ms, job, outcome)
  redis.call('PUBLISH', a.channel, #result <= TOLD_BYTES and told(job, outcome, at_ms, cost) .. result or state)
  return woken(a, lane, before, changed)
end

-- Puts the job back into its tenant's line, at once or after delay_ms. Release, reap and finish share this.
-- ran: the job had started in time, so the delay is not its caller's fault: it gets a new deadline and keeps its
-- rank. Otherwise it gets the last rank: a host that cannot run it tries the other jobs first.
-- job: its whole record. more: fields to write with it. Returns the ids whose messages have to be sent.
local function requeue(a, job, why, delay_ms, at_ms, ran, more)
  local lane = look(a)
  local before = announced(lane)
  local due_ms = at_ms + delay_ms
  local expires_ms = ran and int(due_ms + tonumber(job.window_ms)) or job.expires_ms
  local rank = ran and job.rank or int(PRIORITIES[job.priority] + now_us())
  note(job, why, at_ms, a.kept_dead_s)
  leave(a, lane, job.state)
  lane.held = lane.held - LARGE_BYTES
  write_account(lane)
  local fields = more or {}
  for _, part in ipairs({ 'state', 'queued', 'queued_ms', int(due_ms), 'expires_ms', expires_ms, 'rank', rank }) do
    fields[#fields + 1] = part
  end
  redis.call('HSET', keys.job, unpack(fields))
  -- Redis must not expire its keys before its deadline, however often it comes back.
  local ttl_s = int(a.job_ttl_s + math.ceil(delay_ms / 1000))
  redis.call('EXPIRE', keys.job, ttl_s)
  redis.call('EXPIRE', keys.spec, ttl_s)
  redis.call('ZADD', keys.deadlines, expires_ms, a.job_id)
  redis.call('ZADD', keys.line, expires_ms, a.job_id)
  if delay_ms > 0 then
    redis.call('ZADD', keys.delayed, int(due_ms), a.job_id)
    return woken(a, lane, before)
  end
  redis.call('ZADD', keys.ready, rank, a.job_id)
  lane.ready = lane.ready + 1
  return woken(a, lane, before, true)
end
