-- trim: events before an id leave the stream.
-- KEYS  upkeep events
-- ARGV  epoch before: a stream id
-- Returns {"trimmed", count} · {"stale"}: another leads by now, and nothing was changed
local upkeep_key, events_key = KEYS[1], KEYS[2]
local epoch = whole(ARGV[1])
if #KEYS ~= 2 or #ARGV ~= 2 then
  return { 'invalid', 'count' }
end
if not epoch or not ARGV[2]:match('^%d+%-%d+$') then
  return { 'invalid', epoch and 'before' or 'epoch' }
end
if redis.call('HGET', upkeep_key, 'epoch') ~= int(epoch) then
  return { 'stale' }
end
local last = redis.call('XREVRANGE', events_key, '(' .. ARGV[2], '-', 'COUNT', 1)[1]
if not last then
  return { 'trimmed', '0' }
end
-- Whoever has not read up to here has missed some.
redis.call('HSET', upkeep_key, 'events_trimmed', last[1])
return { 'trimmed', int(redis.call('XTRIM', events_key, 'MINID', ARGV[2])) }
