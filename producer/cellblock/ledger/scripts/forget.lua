-- forget: the first jobs of a list of ended ones leave the store, with all that is kept of them.
-- KEYS  upkeep kept keepers account dead blobs, then of each job: job, result, spec, attempts, idempotency
-- ARGV  epoch; archived: how many of the first entries the archive has, and with them the names of the blobs that their
--       results are in; keeper: the list's name among keepers; next_ms: when the first that stays leaves; the entries
--       that leave
-- Returns {"forgot", bytes} · {"stale"}: another leads by now, or the list is another, and nothing was changed
local upkeep_key, kept_key, keepers_key, account_key, dead_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
keys.blobs = KEYS[6]
local epoch, archived, next_ms = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[4])
local count = #ARGV - 4
if #KEYS < 6 or #KEYS - 6 ~= 5 * count then
  return { 'invalid', 'count' }
end
if not epoch or not next_ms or not archived then
  return { 'invalid', 'epoch, archived or next_ms' }
end
if redis.call('HGET', upkeep_key, 'epoch') ~= int(epoch) then
  return { 'stale' }
end
local entries = count > 0 and redis.call('LRANGE', kept_key, 0, count - 1) or {}
for i = 1, count do
  if entries[i] ~= ARGV[i + 4] then
    return { 'stale' }
  end
end
local function is_only_bytes(fields)
  for _, field in ipairs(fields) do
    if field ~= 'kept_bytes' and field ~= 'held_bytes' and field ~= 'limit_bytes' then
      return false
    end
  end
  return true
end

local bytes = 0
for i = 1, count do
  local first = 5 * i + 2
  local job = redis.call('HMGET', KEYS[first], 'state', 'kept', 'blobs', 'result_blob', 'idempotency')
  if not job[1] or is_terminal(job[1]) then -- else an operator lets it run again
    local job_id, kept = entries[i]:match('^(%S+) (%d+)$')
    bytes = bytes + tonumber(job[2] or kept)
    name_blobs((job[3] or '') .. ' ' .. (i > archived and job[4] or ''), -1)
    redis.call('DEL', KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3])
    if job[5] and (redis.call('GET', KEYS[first + 4]) or ''):sub(1, #job_id + 1) == job_id .. ' ' then
      redis.call('DEL', KEYS[first + 4]) -- unless another job was accepted under the key meanwhile
    end
    redis.call('ZREM', dead_key, job_id)
  end
end
if count > 0 then
  redis.call('LTRIM', kept_key, count, -1)
end
if redis.call('EXISTS', kept_key) == 1 then
  redis.call('ZADD', keepers_key, int(next_ms), ARGV[3])
else
  redis.call('ZREM', keepers_key, ARGV[3])
  redis.call('HDEL', account_key, 'list:' .. ARGV[3]:match('(%d+)$'))
end
local account = redis.call('HMGET', account_key, 'kept_bytes', 'held_bytes')
if account[1] then
  local left = math.max(0, tonumber(account[1]) - bytes)
  redis.call('HSET', account_key, 'kept_bytes', int(left))
  -- A tenant of no plan that has nothing left is forgotten: names cost its caller nothing.
  if left == 0 and tonumber(account[2] or '0') == 0 and is_only_bytes(redis.call('HKEYS', account_key)) then
    redis.call('DEL', account_key)
  end
end
return { 'forgot', int(bytes) }
