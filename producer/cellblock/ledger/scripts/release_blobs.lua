-- release_blobs: the archive has removed results in these blobs; the sweep may remove blobs that no job names any more.
-- Idempotent under op.
-- Returns {"released"}
local a, invalid = arguments('op names...', { 'upkeep', 'blobs' })
if not a then
  return invalid
end
if redis.call('HGET', keys.upkeep, 'op_release') == a.op then
  return { 'released' }
end
redis.call('HSET', keys.upkeep, 'op_release', a.op)
for _, name in ipairs(a.names) do
  name_blobs(name, -1)
end
return { 'released' }
