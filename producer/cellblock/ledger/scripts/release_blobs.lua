-- release_blobs: the archive has removed results in these blobs; what nothing names any more is removed.
-- Idempotent under op.
-- Returns {"released"}
local a, invalid = arguments('op names...', { 'upkeep', 'blobs', 'freed_blobs' })
if not a then
  return invalid
end
if redis.call('HGET', keys.upkeep, 'op_release') == a.op then
  return { 'released' }
end
redis.call('HSET', keys.upkeep, 'op_release', a.op)
free_blobs(table.concat(a.names, ' '), 0, '-') -- the archive itself counts what it keeps of a tenant
return { 'released' }
