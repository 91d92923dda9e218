-- Whose job is next. A message says that something waits, not what: the claim picks.
--
-- The order: first the plan furthest behind by its weight, among plans with a job that could run (stride scheduling: hash
-- plan_shares, pass:<plan>), then its tenant served longest ago (lane_turns, lane_heads), then the first by rank (ready).
-- A tenant has a turn while it has a ready job and a slot for it; with a job and no slot it is parked.
-- There is one message on its way for each job that could be claimed: a script that adds to these jobs has one sent.
--
-- Nested runs stand in a lane of their own, "tenant/parent", with one slot: their parent's, while the parent runs. What is
-- said about tenants here holds for lanes; only the account belongs to the tenant.

-- Account hash <prefix>:account:<tenant>: plan, parallel, bytes_held, bytes_stored (its plan's limits); blob_bytes: what
-- its jobs in the store have in the blob store, their parts and their results; freed_blob_bytes: what jobs had there,
-- until it is removed; held_bytes: of its jobs that have not ended; kept_bytes: of its ended jobs; limit_bytes: the limit
-- of both together; wanted_bytes, wanted_stored_bytes: of the largest job that it was refused for them, until what it keeps
-- has left; list:<s> for each of its lists of ended jobs; per day <day>.runs, <day>.reserved, <day>.spent (micros).

-- Reads once everything that decisions rest on: the tenant's plan and bytes, its ready jobs and slots, and what it used
-- on the day. Code that changes one of these in Redis also changes it in this table. slots: how many jobs the lane may
-- run at once, from its plan, else from the setting; 0 is any number. has_turn: the lane was picked, so it is not parked.
local function look(a, day, has_turn)
  local names = { 'plan', 'parallel', 'held_bytes', 'kept_bytes', 'bytes_held', 'limit_bytes', 'bytes_stored',
    'blob_bytes', 'freed_blob_bytes' }
  if day then
    names[10], names[11] = day .. '.reserved', day .. '.spent'
  end
  local account = fields_of(keys.account, unpack(names))
  local nested = a.lane:find('/', 1, true)
  local lane = {
    plan = account.plan or '',
    slots = nested and 1 or tonumber(account.parallel or a.slots),
    held = tonumber(account.held_bytes or 0),
    kept = tonumber(account.kept_bytes or 0),
    most = tonumber(account.bytes_held or 0),
    limit = tonumber(account.limit_bytes or 0),
    stored = tonumber(account.blob_bytes or 0),
    freed = tonumber(account.freed_blob_bytes or 0),
    most_stored = tonumber(account.bytes_stored or 0),
    day = day,
    reserved = day and tonumber(account[names[10]] or 0),
    spent = day and tonumber(account[names[11]] or 0),
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
