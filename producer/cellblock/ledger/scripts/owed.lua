-- owed: note that the archive has looked at every ended job. It owes that after events it had not read were dropped.
-- ARGV  since: the value of archive_owes that the archive read before it began
-- Returns {"settled"} · {"owes"}: more events were dropped meanwhile
local a, invalid = arguments('since', { 'upkeep' })
if not a then
  return invalid
end
if redis.call('HGET', keys.upkeep, 'archive_owes') ~= a.since then
  return { 'owes' }
end
redis.call('HDEL', keys.upkeep, 'archive_owes')
return { 'settled' }
