-- retry: let a delivery that failed for good be tried again. Idempotent: 1 also for one that is under way.
-- KEYS  due dead items
-- ARGV  id now_ms item (its tries at zero)
-- Returns 1 · 0: it is not a delivery that failed for good
local due, dead, items = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
if redis.call('ZREM', dead, id) == 1 then
  redis.call('HSET', items, id, ARGV[3])
  redis.call('ZADD', due, ARGV[2], id)
  return 1
end
return redis.call('ZSCORE', due, id) and 1 or 0
