-- put: accept a delivery. The same id twice counts once, also when the first has failed for good.
-- KEYS  due dead items
-- ARGV  id now_ms item
local due, dead, items = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
if redis.call('ZSCORE', dead, id) then
  return 0
end
redis.call('HSETNX', items, id, ARGV[3])
return redis.call('ZADD', due, 'NX', ARGV[2], id)
