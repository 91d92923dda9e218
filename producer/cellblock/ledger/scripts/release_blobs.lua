-- release_blobs: archived results in these blobs are forgotten; the sweep may remove what none names any more.
-- Idempotent under op.
-- KEYS  upkeep blobs
-- ARGV  op name...
-- Returns {"released"}
if #KEYS ~= 2 or #ARGV < 1 then
  return { 'invalid', 'count' }
end
local upkeep_key = KEYS[1]
keys.blobs = KEYS[2]
if redis.call('HGET', upkeep_key, 'op_release') == ARGV[1] then
  return { 'released' }
end
redis.call('HSET', upkeep_key, 'op_release', ARGV[1])
for i = 2, #ARGV do
  name_blobs(ARGV[i], -1)
end
return { 'released' }
