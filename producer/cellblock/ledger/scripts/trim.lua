-- trim: remove the events before an id from the stream.
-- ARGV  before: a stream id; archive: the first event that the archive has not finished with, "" without an archive
-- Returns {"trimmed", count} · {"stale"}: another worker leads by now, and nothing was changed
local a, invalid = arguments('epoch# before archive', { 'upkeep', 'events' })
if not a then
  return invalid
end
if not a.before:match('^%d+%-%d+$') then
  return { 'invalid', 'before' }
end
if redis.call('HGET', keys.upkeep, 'epoch') ~= int(a.epoch) then
  return { 'stale' }
end
local last = redis.call('XREVRANGE', keys.events, '(' .. a.before, '-', 'COUNT', 1)[1]
if not last then
  return { 'trimmed', '0' }
end
-- A reader that has not read up to here has missed events.
redis.call('HSET', keys.upkeep, 'events_trimmed', last[1])
local function numbers(id)
  local at_ms, number = id:match('^(%d+)%-(%d+)$')
  return tonumber(at_ms), tonumber(number)
end
if a.archive ~= '' then
  local at_ms, number = numbers(a.archive)
  local last_ms, last_number = numbers(last[1])
  if last_ms > at_ms or (last_ms == at_ms and last_number >= number) then
    redis.call('HSET', keys.upkeep, 'archive_owes', last[1]) -- the archive has to look at every ended job
  end
end
return { 'trimmed', int(redis.call('XTRIM', keys.events, 'MINID', a.before)) }
