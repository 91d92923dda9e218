-- forget: remove the first jobs of a list of ended jobs from the store, with everything it keeps of them.
-- KEYS  of_jobs: for each job that leaves, its keys job, result, spec, attempts and idempotency
-- ARGV  archived: the first N entries are in the archive, which also has the names of the blobs that hold their
--       results; keeper: the list's name among keepers; next_ms: when the first remaining job leaves; leaving: the
--       entries that leave
-- Returns {"forgot", bytes} · {"stale"}: another worker leads by now, or the list has changed; nothing was changed
local a, invalid = arguments('epoch# archived# keeper next_ms# leaving...',
  { 'upkeep', 'kept', 'keepers', 'account', 'dead', 'blobs', 'of_jobs...' })
if not a then
  return invalid
end
local count = #a.leaving
if #keys.of_jobs ~= 5 * count then
  return { 'invalid', 'of_jobs' }
end
if redis.call('HGET', keys.upkeep, 'epoch') ~= int(a.epoch) then
  return { 'stale' }
end
local entries = count > 0 and redis.call('LRANGE', keys.kept, 0, count - 1) or {}
for i = 1, count do
  if entries[i] ~= a.leaving[i] then
    return { 'stale' }
  end
end
local function is_only_bytes(fields)
  for _, field in ipairs(fields) do
    if field ~= 'kept_bytes' and field ~= 'held_bytes' and field ~= 'limit_bytes' and field ~= 'blob_bytes' then
      return false
    end
  end
  return true
end

local bytes, stored = 0, 0
for i = 1, count do
  local job_key, result_key, spec_key, attempts_key, idempotency_key = unpack(keys.of_jobs, 5 * i - 4, 5 * i)
  local job = redis.call('HMGET', job_key, 'state', 'kept', 'blobs', 'result_blob', 'idempotency', 'blob_bytes', 'result_bytes')
  if not job[1] or is_terminal(job[1]) then -- else an operator has let it run again
    local job_id, kept = entries[i]:match('^(%S+) (%d+)$')
    bytes = bytes + tonumber(job[2] or kept)
    stored = stored + tonumber(job[6] or '0') + tonumber(job[7] or '0')
    name_blobs((job[3] or '') .. ' ' .. (i > a.archived and job[4] or ''), -1)
    redis.call('DEL', job_key, result_key, spec_key, attempts_key)
    if job[5] and (redis.call('GET', idempotency_key) or ''):sub(1, #job_id + 1) == job_id .. ' ' then
      redis.call('DEL', idempotency_key) -- unless another job was accepted under the key meanwhile
    end
    redis.call('ZREM', keys.dead, job_id)
  end
end
if count > 0 then
  redis.call('LTRIM', keys.kept, count, -1)
end
if redis.call('EXISTS', keys.kept) == 1 then
  redis.call('ZADD', keys.keepers, int(a.next_ms), a.keeper)
else
  redis.call('ZREM', keys.keepers, a.keeper)
  redis.call('HDEL', keys.account, 'list:' .. a.keeper:match('(%d+)$'))
end
store_bytes(-stored)
local account = redis.call('HMGET', keys.account, 'kept_bytes', 'held_bytes')
if account[1] then
  local left = math.max(0, tonumber(account[1]) - bytes)
  redis.call('HSET', keys.account, 'kept_bytes', int(left))
  -- Forget a tenant that has no plan and nothing left: a caller can invent any number of tenant names for free.
  if left == 0 and tonumber(account[2] or '0') == 0 and is_only_bytes(redis.call('HKEYS', keys.account)) then
    redis.call('DEL', keys.account)
  end
end
return { 'forgot', int(bytes) }
