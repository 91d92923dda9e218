-- prune: remove the consumers of a group that were idle for longer than idle_ms and hold no event. In one step, so
-- that no consumer is removed between receiving an event and acknowledging it.
-- KEYS  events
-- ARGV  group idle_ms
-- Returns the number of removed consumers
local pruned = 0
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #flat, 2 do
    consumer[flat[i]] = flat[i + 1]
  end
  if consumer.pending == 0 and consumer.idle > tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    pruned = pruned + 1
  end
end
return pruned
