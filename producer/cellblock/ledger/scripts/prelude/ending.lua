-- How a job ends, or goes back into its line.

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

-- The fields that are not needed after a job has ended.
local GONE_OF_THE_DEAD = { 'reserved', 'charged', 'borrowed', 'op_claim' }
local GONE = { 'reserved', 'charged', 'borrowed', 'op_claim', 'rank', 'priority', 'window_ms', 'expires_ms', 'queued_ms',
  'faults', 'failures', 'bytes', 'day', 'lent', 'op_retry', 'blobs',
  'blob_bytes', 'uploading' }

-- What waiting callers get before the result: the fields of the record that belong to it (ledger/stored_results.py).
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
  local dead = OUR_FAULT[outcome] ~= nil
  local cost = settle(job, lane, dead and 0 or charge or 0)
  local changed = leave(a, lane, job.state)
  local bytes = tonumber(job.bytes or '0')
  local kept = #result + #a.message + RECORD_KEPT_BYTES + name_bytes(job.tenant, job.idempotency or '') + (dead and bytes or 0)
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
    local parts_bytes = tonumber(job.blob_bytes or '0')
    store_bytes(lane, -parts_bytes)
    free_blobs(job.blobs or '', parts_bytes, job.tenant)
  end
  redis.call('RPUSH', list, a.job_id .. ' ' .. int(kept))
  local looked_at_ms = int(at_ms + 1000 * math.min(kept_s, a.looked_at_s))
  redis.call('ZADD', keys.keepers, 'LT', looked_at_ms, job.tenant .. ' ' .. int(kept_s))
  lane.held = lane.held - bytes - (job.state == 'running' and LARGE_BYTES or 0)
  lane.kept = lane.kept + kept
  -- list: finds this tenant's lists without a search through the lists of all tenants
  write_account(lane, { 'list:' .. int(kept_s), '1' })
  if lane.limit > 0 and lane.held + lane.kept > lane.limit then
    redis.call('ZADD', keys.crowded, 'GT', 0, job.tenant)
  end
  if lane.most_stored > 0 and lane.stored > lane.most_stored then
    redis.call('ZADD', keys.crowded, 'GT', 0, job.tenant)
  end
  if kept > LARGE_BYTES and a.measures == 1 then
    redis.call('HINCRBY', keys.pressure, 'taken_bytes', int(kept))
  end
  emit(state, a.job_id, at_ms, job, outcome, state ~= 'cancelled' and a.message or '')
  local whole = #result <= TOLD_BYTES
  local callers = redis.call('PUBLISH', a.channel, whole and told(job, outcome, at_ms, cost) .. result or state)
  if whole and callers > 0 then
    redis.call('HSET', keys.job, 'fetched', '1')
  end
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
