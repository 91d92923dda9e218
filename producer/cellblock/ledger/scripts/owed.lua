-- owed: the archive has looked at every ended job, as it owed since events were dropped that it had not read.
-- KEYS  upkeep
-- ARGV  since: what upkeep had said of it before
-- Returns {"settled"} · {"owes"}: more were dropped meanwhile
if #KEYS ~= 1 or #ARGV ~= 1 then
  return { 'invalid', 'count' }
end
if redis.call('HGET', KEYS[1], 'archive_owes') ~= ARGV[1] then
  return { 'owes' }
end
redis.call('HDEL', KEYS[1], 'archive_owes')
return { 'settled' }
