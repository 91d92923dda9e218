#!lua flags=allow-oom
-- Put messages into a queue until it holds messages_most of them.
-- KEYS  queue
-- ARGV  messages_most message...
-- Returns how many messages were put there
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
local sent = 0
for i = 2, #ARGV do
  if sent < room then
    redis.call('LPUSH', KEYS[1], ARGV[i])
    sent = sent + 1
  end
end
return sent
