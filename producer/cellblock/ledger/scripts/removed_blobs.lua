-- removed_blobs: these freed blobs are not in the blob store any more: their bytes count no longer. Idempotent.
-- KEYS  accounts: for each entry the account of its tenant
-- ARGV  entries: as free_blobs in prelude/blobs.lua wrote them
-- Returns {"removed"}
local a, invalid = arguments('entries...', { 'freed_blobs', 'accounts...' })
if not a then
  return invalid
end
if #keys.accounts ~= #a.entries then
  return { 'invalid', 'accounts' }
end
for i, entry in ipairs(a.entries) do
  local account_key = keys.accounts[i]
  local counted = redis.call('LREM', keys.freed_blobs, 1, entry) == 1
    and redis.call('HGET', account_key, 'freed_blob_bytes')
  if counted then
    local left = tonumber(counted) - tonumber(entry:match('^%d+ (%d+) '))
    if left > 0 then
      redis.call('HSET', account_key, 'freed_blob_bytes', int(left))
    else
      redis.call('HDEL', account_key, 'freed_blob_bytes')
    end
  end
end
return { 'removed' }
