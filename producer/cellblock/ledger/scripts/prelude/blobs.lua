-- What jobs have in the blob store: names, and bytes on their tenants' accounts.

-- Adds to what the tenant's jobs have there, or takes from it.
local function store_bytes(lane, more)
  if more ~= 0 then
    lane.stored = lane.stored + more
    if redis.call('HINCRBY', keys.account, 'blob_bytes', int(more)) < 0 then
      redis.call('HSET', keys.account, 'blob_bytes', '0')
    end
  end
end

-- A job names these blobs (their names, separated by blanks). The sweep removes blobs that no job names.
local function name_blobs(names)
  for name in names:gmatch('%S+') do
    redis.call('HINCRBY', keys.blobs, name, 1)
  end
end

-- A job, or the archive, names these blobs no more. Those that nothing names wait in a list, for the upkeep's leader to
-- remove them (ledger/freed_blobs.py); until then their bytes, given for all together, count on the tenant's account.
local function free_blobs(names, bytes, tenant)
  local at_ms, room, waiting = int(now_ms()), FREED_BLOBS_MOST - redis.call('LLEN', keys.freed_blobs), 0
  for name in names:gmatch('%S+') do
    if redis.call('HINCRBY', keys.blobs, name, -1) <= 0 then
      redis.call('HDEL', keys.blobs, name)
      if room > 0 then
        -- The first entry stands for the bytes of all.
        redis.call('RPUSH', keys.freed_blobs, table.concat({ at_ms, int(bytes - waiting), name, tenant }, ' '))
        room, waiting = room - 1, bytes
      end
    end
  end
  if waiting > 0 then
    redis.call('HINCRBY', keys.account, 'freed_blob_bytes', int(waiting))
  end
end

-- The same of blobs that were put there too late, or in vain, unless something names them after all.
local function free_unused_blobs(names, bytes, tenant)
  local unused = {}
  for name in names:gmatch('%S+') do
    if redis.call('HEXISTS', keys.blobs, name) == 0 then
      unused[#unused + 1] = name
    end
  end
  free_blobs(table.concat(unused, ' '), bytes, tenant)
end
