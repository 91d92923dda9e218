-- admit: accept a job, all or nothing.
-- ARGV  below. digest: of the request under the idempotency key. forgotten: the job that an idempotency key still
--       names although its record has expired, else "".
--       blobs: the names of its blobs, separated by blanks. tenant_percent: a tenant's share of the store's memory.
--       planned: 1 if a plan bounds it: its name and weight, parallel runs, one run per emission_us and burst at
--       once, runs a day, jobs that wait, and micros: reserve for this run, budget a day; result_ttl_s: how long its
--       result is kept; bytes_held: the most its tenant's jobs may take of the store, 0 if the plan has no such limit;
--       bytes_stored: the same of the blob store.
--       blob_bytes: its parts for the blob store, which are put there once it is admitted; upload_ms: it cannot be
--       claimed before `uploaded`, and is cancelled when this time has passed: its caller was lost. 0 without parts
--       parent: for a nested run, the id of the running job whose slot and money it takes, else "";
--       accrued: the most that the parent's attempt can have cost by now. keyed: 1 if an API key submits, which lifts no plan
-- Returns {"admitted", job_id, woken id, ...} · {"known", job_id} · {"conflict", job_id} · {"full", waiting}
--       · {"refused", limit, allowed, used, retry_after_ms, share}: nothing was taken of any limit; share: the money that
--         is spent of `used`, or the bytes of this job
--       · {"orphan", ""}: no such parent runs · {"poor", left}: the micros that the parent has left
--       · {"no room", used, limit}: bytes of the store
local a, invalid = arguments('job_id digest manifest tenant level priority trace_id submitted image queue_depth# ' ..
  'job_ttl_s# expires_ms# idempotent# idempotency forgotten parent lane slots# blobs tenant_percent# memory_bytes# ' ..
  'measures# planned# plan weight# parallel# emission_us# burst# day_runs# depth# reserve# budget# result_ttl_s# ' ..
  'bytes_held# bytes_stored# blob_bytes# upload_ms# accrued# keyed#', OF_JOB, { 'idempotency', 'rate' })
if not a then
  return invalid
end
if not PRIORITIES[a.priority] or (a.planned == 1 and a.weight == 0) then
  return { 'invalid', 'priority or weight' }
end
local DAY_MS = 86400000
local HELD_MS = '5000'
local ROOM_MS = '1000'
local REMOVED_MS = '5000'
local FORGOTTEN_MS = 60000

if a.idempotent == 1 then
  local known = redis.call('GET', keys.idempotency)
  if known then
    local known_id, known_digest, early = known:match('^(%S+) (%S+) ?(%S*)$')
    if known_id ~= a.forgotten or early == 'early' then
      return { known_digest == a.digest and 'known' or 'conflict', known_id }
    end
  end
end
if redis.call('EXISTS', keys.job) == 1 then
  return { 'known', a.job_id }
end
local at_us = now_us()
local now = math.floor(at_us / 1000)
local used, limit = pressure(a, now)
if limit > 0 and used * 100 >= limit * ADMITS_BELOW then
  return { 'no room', int(used), int(limit) }
end
local waiting = redis.call('ZCARD', keys.deadlines) -- queued, delayed and parked
if waiting >= a.queue_depth then
  return { 'full', int(waiting) }
end

local lender = {}
if a.parent ~= '' then
  lender = fields_of(keys.parent, 'state', 'tenant', 'reserved', 'charged', 'day')
  if lender.state ~= 'running' or lender.tenant ~= a.tenant then
    return { 'orphan', '' }
  end
  local left = math.max(0, tonumber(lender.reserved or '0') - tonumber(lender.charged or '0') - a.accrued)
  if a.planned == 1 and (not lender.reserved or a.reserve > left) then
    return { 'poor', int(left) }
  end
end
local lane = look(a)
local before = announced(lane)
local bytes = #a.manifest + RECORD_BYTES + name_bytes(a.tenant, a.idempotency)
lane.most = a.planned == 1 and a.bytes_held or lane.most
local most = most_bytes(lane, a.tenant_percent, limit)
lane.limit = most
local function is_too_much()
  return most > 0 and lane.held + lane.kept + bytes > most
end
-- Ended jobs of the tenant leave earlier: enough for this job (ledger/crowded_tenants.py).
local function crowd(field, wanted_bytes)
  redis.call('ZADD', keys.crowded, 'GT', 0, a.tenant)
  local before = tonumber(redis.call('HGET', keys.account, field) or '0')
  redis.call('HSET', keys.account, field, int(math.max(before, wanted_bytes)))
end
-- Nothing of the tenant waits or runs.
local function is_idle()
  return a.parent == '' and redis.call('SCARD', keys.slots) == 0
    and redis.call('ZCOUNT', keys.line, int(now - FORGOTTEN_MS), '+inf') == 0
end
if is_too_much() and lane.held > 0 and is_idle() then
  lane.held = 0 -- Redis forgot by itself what waited or ran, with the bytes of it
end
if is_too_much() then
  if lane.kept > 0 and lane.held + bytes <= most then -- else nothing that has ended would be enough
    crowd('wanted_bytes', bytes)
  end
  return { 'refused', 'bytes_held', int(most), int(lane.held + lane.kept), ROOM_MS, int(bytes) }
end
local mine, free = lane.held + lane.kept, limit * ADMITS_BELOW / 100 - used
if limit > 0 and used * 100 >= limit * SHARED_ABOVE and mine + bytes > math.max(free - bytes, limit / 100) then
  if mine == 0 then
    return { 'no room', int(used), int(limit) }
  end
  if lane.kept > 0 and lane.held + bytes <= math.max(free + lane.kept - bytes, limit / 100) then
    crowd('wanted_bytes', bytes)
  end
  return { 'refused', 'store_share', int(free), int(mine), ROOM_MS, int(bytes) }
end
local most_stored = a.planned == 1 and a.bytes_stored or lane.most_stored
local function is_too_much_stored()
  return most_stored > 0 and a.blob_bytes > 0 and lane.stored + lane.freed + a.blob_bytes > most_stored
end
if is_too_much_stored() and lane.kept == 0 and is_idle() then
  store_bytes(lane, -lane.stored) -- as above
end
if is_too_much_stored() then
  if lane.kept > 0 and a.blob_bytes <= most_stored then
    crowd('wanted_stored_bytes', a.blob_bytes)
  end
  local wait_ms = lane.stored + a.blob_bytes > most_stored and ROOM_MS or REMOVED_MS
  return { 'refused', 'bytes_stored', int(most_stored), int(lane.stored + lane.freed), wait_ms, int(a.blob_bytes) }
end

local day = int(math.floor(now / DAY_MS))
local account = {}
local fields = { 'state', 'queued', 'tenant', a.tenant, 'level', a.level, 'priority', a.priority,
  'trace_id', a.trace_id, 'submitted', a.submitted, 'attempt', '0', 'admitted_ms', int(now),
  'queued_ms', int(now), 'expires_ms', int(now + a.expires_ms), 'window_ms', int(a.expires_ms),
  'bytes', int(bytes), 'image', a.image }
local function also(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if a.planned == 1 then
  -- A job that is long past its deadline lost its record before the reaper could end it: it does not count.
  local lined_up = redis.call('ZCOUNT', keys.line, int(now - FORGOTTEN_MS), '+inf')
  if lined_up >= a.depth then
    return { 'refused', 'queue_depth', int(a.depth), int(lined_up), '1000', '0' }
  end
  -- GCRA: the theoretical arrival time of the next run is ahead of now by one burst at most.
  local arrival_us = math.max(at_us, tonumber(redis.call('GET', keys.rate) or '0'))
  local early_us = arrival_us + a.emission_us - a.burst * a.emission_us - at_us
  if early_us > 0 then
    local ahead = math.ceil((arrival_us - at_us) / a.emission_us)
    return { 'refused', 'rate', int(a.burst), int(ahead), int(math.ceil(early_us / 1000)), '0' }
  end
  local of_day = redis.call('HMGET', keys.account, day .. '.runs', day .. '.reserved', day .. '.spent')
  local tomorrow_ms = int((day + 1) * DAY_MS - now)
  local runs, bound = tonumber(of_day[1] or '0'), tonumber(of_day[2] or '0') + tonumber(of_day[3] or '0')
  if runs >= a.day_runs then
    return { 'refused', 'runs_per_day', int(a.day_runs), int(runs), tomorrow_ms, '0' }
  end
  if a.parent == '' and bound + a.reserve > a.budget then
    -- Money that is only held can come back at any moment.
    local spent = tonumber(of_day[3] or '0')
    local wait_ms = spent + a.reserve > a.budget and tomorrow_ms or HELD_MS
    return { 'refused', 'cost_per_day', int(a.budget), int(bound), wait_ms, int(spent) }
  end
  local next_us = arrival_us + a.emission_us
  redis.call('SET', keys.rate, int(next_us), 'PX', int(math.ceil((next_us - at_us) / 1000) + 1))
  account = { day .. '.runs', int(runs + 1) }
  if a.parent == '' then
    for _, part in ipairs({ day .. '.reserved', int(tonumber(of_day[2] or '0') + a.reserve), 'plan', a.plan,
      'parallel', int(a.parallel), 'bytes_held', int(a.bytes_held), 'bytes_stored', int(a.bytes_stored) }) do
      account[#account + 1] = part
    end
    redis.call('HSET', keys.plan_shares, 'weight:' .. a.plan, int(a.weight))
  else
    redis.call('HINCRBY', keys.parent, 'reserved', int(-a.reserve))
    redis.call('HINCRBY', keys.parent, 'lent', int(a.reserve))
    also('borrowed', '1')
  end
  if runs == 0 then -- the first run of a day removes the fields of old days
    for _, field in ipairs(redis.call('HKEYS', keys.account)) do
      local named = tonumber(field:match('^(%d+)%.') or day)
      if named <= day - ACCOUNT_S * 1000 / DAY_MS then
        redis.call('HDEL', keys.account, field)
      end
    end
  end
  also('plan', a.plan)
  also('reserved', int(a.reserve))
  also('day', a.parent == '' and day or lender.day)
  also('result_ttl_s', int(a.result_ttl_s))
end
if a.parent ~= '' then
  also('parent', a.parent)
end
if a.idempotent == 1 then
  also('idempotency', a.idempotency)
  also('digest', a.digest)
end
if a.blobs ~= '' then
  also('blobs', a.blobs)
  also('blob_bytes', int(a.blob_bytes))
end
if a.upload_ms > 0 then
  also('uploading', '1')
end
local rank = int(PRIORITIES[a.priority] + at_us)
also('rank', rank)
redis.call('HSET', keys.job, unpack(fields))
redis.call('EXPIRE', keys.job, int(a.job_ttl_s))
local was = lane.plan
if a.planned == 1 and a.parent == '' then
  lane.plan = a.plan
  lane.slots = a.parallel
elseif a.planned == 0 and a.parent == '' and a.keyed == 0 and was ~= '' then
  -- This must follow the HSET above: a full server refuses that HSET only while the script has written nothing.
  redis.call('HDEL', keys.account, 'plan', 'parallel', 'bytes_held', 'bytes_stored')
  lane.plan = ''
  lane.slots = a.slots
end
if lane.slots > 0 then
  lane.taken = redis.call('SCARD', keys.slots)
end
name_blobs(a.blobs)
store_bytes(lane, a.blob_bytes)
redis.call('SET', keys.spec, a.manifest, 'EX', int(a.job_ttl_s))
if a.upload_ms > 0 then
  redis.call('ZADD', keys.delayed, int(now + a.upload_ms), a.job_id)
else
  redis.call('ZADD', keys.ready, rank, a.job_id)
  lane.ready = lane.ready + 1
end
redis.call('ZADD', keys.deadlines, int(now + a.expires_ms), a.job_id)
if a.planned == 1 then
  redis.call('ZREMRANGEBYSCORE', keys.line, '-inf', '(' .. int(now - FORGOTTEN_MS))
end
redis.call('ZADD', keys.line, int(now + a.expires_ms), a.job_id)
if a.idempotent == 1 then
  redis.call('SET', keys.idempotency, a.job_id .. ' ' .. a.digest, 'EX', int(a.job_ttl_s))
end
lane.held = lane.held + bytes
write_account(lane, account)
redis.call('EXPIRE', keys.account, ACCOUNT_S)
if limit > 0 then
  redis.call('HINCRBY', keys.pressure, 'taken_bytes', int(bytes + MESSAGE_BYTES))
end
emit('queued', a.job_id, now, { tenant = a.tenant, attempt = '0', trace_id = a.trace_id, plan = a.plan, image = a.image })
local ids = woken(a, lane, before, was ~= lane.plan and 'plan' or true)
table.insert(ids, 1, a.job_id)
return reply('admitted', ids)
