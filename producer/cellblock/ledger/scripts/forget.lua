-- forget: jobs of one tenant that have ended leave the store, with all that is kept of them.
-- KEYS  upkeep kept keepers account dead, then of each job: job, result, spec, attempts, idempotency
-- ARGV  epoch tenant leaves_by_ms job_id...     only who would leave by then does
-- Returns {"forgot", count, bytes} · {"stale"}: another leads by now, and nothing was changed
local upkeep_key, kept_key, keepers_key, account_key, dead_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, leaves_by_ms = whole(ARGV[1]), whole(ARGV[3])
if #KEYS < 5 or #KEYS - 5 ~= 5 * (#ARGV - 3) then
  return { 'invalid', 'count' }
end
if not epoch or not leaves_by_ms then
  return { 'invalid', epoch and 'leaves_by_ms' or 'epoch' }
end
if redis.call('HGET', upkeep_key, 'epoch') ~= int(epoch) then
  return { 'stale' }
end
local count, bytes = 0, 0
for i = 4, #ARGV do
  local job_id, first = ARGV[i], 5 * (i - 4) + 6
  local leaves_ms = redis.call('ZSCORE', kept_key, job_id)
  if leaves_ms and tonumber(leaves_ms) <= leaves_by_ms then
    bytes = bytes + tonumber(redis.call('HGET', KEYS[first], 'kept') or '0')
    redis.call('DEL', KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], KEYS[first + 4])
    redis.call('ZREM', kept_key, job_id)
    redis.call('ZREM', dead_key, job_id)
    count = count + 1
  end
end
local first = redis.call('ZRANGE', kept_key, 0, 0, 'WITHSCORES')
local left = tonumber(redis.call('HGET', account_key, 'kept_bytes') or '0') - bytes
if first[1] then
  redis.call('ZADD', keepers_key, first[2], ARGV[2])
else
  redis.call('ZREM', keepers_key, ARGV[2])
  left = 0 -- whatever went without this script
end
if redis.call('EXISTS', account_key) == 1 then
  redis.call('HSET', account_key, 'kept_bytes', int(math.max(0, left)))
end
return { 'forgot', int(count), int(bytes) }
