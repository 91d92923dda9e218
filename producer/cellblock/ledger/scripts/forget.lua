-- forget: remove jobs of a list of ended jobs from the store, with everything it keeps of them. Idempotent.
-- KEYS  early: the list of keys of jobs that left early; of_jobs: for each job that leaves, its keys job, result, spec,
--       attempts and idempotency
-- ARGV  archived: the first N jobs are in the archive, which also has the names of the blobs that hold their results;
--       keeper: the list's name among keepers; next_ms: when the first remaining job leaves; leaving: for each job that
--       leaves its entry, and until when (ms) its idempotency key holds: a job that leaves early would run twice without
-- Returns {"forgot", bytes} · {"stale"}: another worker leads by now; nothing was changed
local a, invalid = arguments('epoch# archived# keeper next_ms# leaving...',
  { 'upkeep', 'kept', 'early', 'keepers', 'account', 'dead', 'blobs', 'freed_blobs', 'of_jobs...' })
if not a then
  return invalid
end
local count = #a.leaving / 2
if #keys.of_jobs ~= 5 * count then
  return { 'invalid', 'of_jobs' }
end
if redis.call('HGET', keys.upkeep, 'epoch') ~= int(a.epoch) then
  return { 'stale' }
end
local tenant, stay = a.keeper:match('^(.*) (%d+)$')
local now = now_ms()
local function is_only_bytes(fields)
  local bytes_of = { kept_bytes = true, held_bytes = true, limit_bytes = true, blob_bytes = true, freed_blob_bytes = true,
    wanted_bytes = true, wanted_stored_bytes = true }
  for _, field in ipairs(fields) do
    if not bytes_of[field] then
      return false
    end
  end
  return true
end

-- The key goes with its job, unless another job was accepted under it meanwhile, or it still holds: returns its bytes then.
local function let_go_of_key(idempotency_key, job_id, name, until_ms)
  local known = redis.call('GET', idempotency_key) or ''
  if known:sub(1, #job_id + 1) ~= job_id .. ' ' then
    return 0
  end
  if until_ms <= now then
    redis.call('DEL', idempotency_key)
    return 0
  end
  local bytes = EARLY_KEY_BYTES + 2 * #name + #tenant
  redis.call('SET', idempotency_key, known:match('^%S+ %S+') .. ' early', 'PX', int(until_ms - now))
  redis.call('RPUSH', keys.early, job_id .. ' ' .. int(bytes) .. ' ' .. int(until_ms) .. ' ' .. name)
  redis.call('ZADD', keys.keepers, 'LT', int(until_ms), tenant .. ' 0')
  redis.call('HSET', keys.account, 'list:0', '1')
  return bytes
end

local bytes, stored = 0, 0
for i = 1, count do
  local entry, until_ms = a.leaving[2 * i - 1], tonumber(a.leaving[2 * i]) or 0
  local job_key, result_key, spec_key, attempts_key, idempotency_key = unpack(keys.of_jobs, 5 * i - 4, 5 * i)
  if redis.call('LREM', keys.kept, 1, entry) == 1 then
    local job = redis.call('HMGET', job_key, 'state', 'kept', 'blobs', 'result_blob', 'idempotency', 'blob_bytes',
      'result_bytes')
    if not job[1] or is_terminal(job[1]) then -- else an operator has let it run again
      local job_id, kept = entry:match('^(%S+) (%d+)')
      bytes = bytes + tonumber(job[2] or kept)
      local parts_bytes, result_bytes = tonumber(job[6] or '0'), tonumber(job[7] or '0')
      stored = stored + parts_bytes + result_bytes
      free_blobs(job[3] or '', parts_bytes, tenant)
      if i > a.archived then
        free_blobs(job[4] or '', result_bytes, tenant)
      end
      redis.call('DEL', job_key, result_key, spec_key, attempts_key)
      local name = job[5] or entry:match('^%S+ %d+ %d+ (.*)$')
      if name then
        bytes = bytes - let_go_of_key(idempotency_key, job_id, name, until_ms)
      end
      redis.call('ZREM', keys.dead, job_id)
    end
  end
end
if redis.call('EXISTS', keys.kept) == 1 then
  redis.call('ZADD', keys.keepers, int(a.next_ms), a.keeper)
else
  redis.call('ZREM', keys.keepers, a.keeper)
  redis.call('HDEL', keys.account, 'list:' .. stay)
end
store_bytes({ stored = 0 }, -stored)
local account = redis.call('HMGET', keys.account, 'kept_bytes', 'held_bytes')
if account[1] then
  local left = math.max(0, tonumber(account[1]) - bytes)
  redis.call('HSET', keys.account, 'kept_bytes', int(left))
  -- Forget a tenant that has no plan and nothing left: a caller can invent any number of tenant names for free.
  if left == 0 and tonumber(account[2] or '0') == 0 and is_only_bytes(redis.call('HKEYS', keys.account)) then
    redis.call('DEL', keys.account)
  end
end
return { 'forgot', int(math.max(0, bytes)) }
