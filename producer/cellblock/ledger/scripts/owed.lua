-- owed: the archive has looked at every ended job, as it owed since events were dropped that it had not read.
-- ARGV  since: what upkeep had said of it before
-- Returns {"settled"} · {"owes"}: more were dropped meanwhile
local a, invalid = arguments('since', { 'upkeep' })
if not a then
  return invalid
end
if redis.call('HGET', keys.upkeep, 'archive_owes') ~= a.since then
  return { 'owes' }
end
redis.call('HDEL', keys.upkeep, 'archive_owes')
return { 'settled' }
