-- Measures how full the store is and returns used and limit in bytes; 0 means no limit. The hash `pressure` has at_ms,
-- used_bytes, limit_bytes, and taken_bytes: an estimate of what was admitted since.
local function measure(memory_bytes, at_ms)
  local said = redis.call('INFO', 'memory')
  local function figure(name)
    return tonumber(said:match(name .. ':(%d+)') or '0')
  end
  local limit = figure('maxmemory')
  if limit == 0 or (memory_bytes > 0 and memory_bytes < limit) then
    limit = memory_bytes
  end
  -- As Redis itself counts against maxmemory.
  local used = figure('used_memory') - figure('mem_not_counted_for_evict')
  redis.call('HSET', keys.pressure, 'at_ms', int(at_ms), 'used_bytes', int(used), 'limit_bytes', int(limit),
    'taken_bytes', '0')
  return used, limit
end

-- Returns the used bytes and the limit. The upkeep's leader measures; without a leader, the calling script does.
local function pressure(a, at_ms)
  if a.measures == 0 then
    return 0, 0
  end
  local found = redis.call('HMGET', keys.pressure, 'at_ms', 'used_bytes', 'taken_bytes', 'limit_bytes')
  if not found[1] or at_ms - tonumber(found[1]) > MEASURED_MS or at_ms < tonumber(found[1]) then
    return measure(a.memory_bytes, at_ms)
  end
  return tonumber(found[2]) + tonumber(found[3]), tonumber(found[4])
end
