-- take: a delivery that is due, kept from others until a later time.
-- KEYS  due items
-- ARGV  now_ms until_ms
-- Returns nil · the item as JSON · "gone" (it was dropped, and is forgotten now)
local id = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1)[1]
if not id then
  return nil
end
local item = redis.call('HGET', KEYS[2], id)
if not item then
  redis.call('ZREM', KEYS[1], id)
  return 'gone'
end
redis.call('ZADD', KEYS[1], ARGV[2], id)
return item
