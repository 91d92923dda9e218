-- settle: the end of a try. Only the sender that still holds the delivery may report it: after a try that took
-- too long the delivery is another sender's.
-- KEYS  due dead items
-- ARGV  id until_ms (as taken) now_ms word again_ms item kept
--       word: delivered | again (at again_ms) | dead
-- Returns "settled" · "stale"
local due, dead, items = KEYS[1], KEYS[2], KEYS[3]
local id, word = ARGV[1], ARGV[4]
if redis.call('ZSCORE', due, id) ~= ARGV[2] then
  return 'stale'
end
if word == 'delivered' then
  redis.call('ZREM', due, id)
  redis.call('HDEL', items, id)
elseif word == 'again' then
  redis.call('ZADD', due, ARGV[5], id)
  redis.call('HSET', items, id, ARGV[6])
else
  redis.call('ZREM', due, id)
  redis.call('ZADD', dead, ARGV[3], id)
  redis.call('HSET', items, id, ARGV[6])
  while redis.call('ZCARD', dead) > tonumber(ARGV[7]) do
    redis.call('HDEL', items, redis.call('ZPOPMIN', dead)[1])
  end
end
return 'settled'
