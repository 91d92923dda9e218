-- trim: events before an id leave the stream.
-- KEYS  upkeep events
-- ARGV  epoch before: a stream id; archive: the first event that the archive has not done with, "" without one
-- Returns {"trimmed", count} · {"stale"}: another leads by now, and nothing was changed
local upkeep_key, events_key = KEYS[1], KEYS[2]
local epoch = whole(ARGV[1])
if #KEYS ~= 2 or #ARGV ~= 3 then
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
local function numbers(id)
  local at_ms, number = id:match('^(%d+)%-(%d+)$')
  return tonumber(at_ms), tonumber(number)
end
if ARGV[3] ~= '' then
  local at_ms, number = numbers(ARGV[3])
  local last_ms, last_number = numbers(last[1])
  if last_ms > at_ms or (last_ms == at_ms and last_number >= number) then
    redis.call('HSET', upkeep_key, 'archive_owes', last[1]) -- every ended job has to be looked at
  end
end
return { 'trimmed', int(redis.call('XTRIM', events_key, 'MINID', ARGV[2])) }
