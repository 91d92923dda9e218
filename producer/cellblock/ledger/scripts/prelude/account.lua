-- What a tenant's account is charged: money, and bytes of the store. ledger/scripts/prelude/lanes.lua names its fields.

-- The one place that takes money: never more than was reserved. It also gives the reservation back.
-- Returns the micros taken, nil for a job without a plan. Only `lane` changes: write_account writes the account.
local function settle(job, lane, charge)
  if not job.reserved then
    return nil
  end
  local held = tonumber(job.reserved)
  local cost = math.min(held, tonumber(job.charged or '0') + charge)
  local given_back = held
  if job.borrowed and redis.call('HEXISTS', keys.parent, 'reserved') == 1 then
    -- Its parent has not ended: the parent gets the rest back.
    redis.call('HINCRBY', keys.parent, 'reserved', int(held - cost))
    redis.call('HINCRBY', keys.parent, 'lent', int(cost - held))
    given_back = cost
  end
  lane.reserved = lane.reserved - given_back
  lane.spent = lane.spent + cost
  return cost
end

-- Returns the bytes that a tenant's jobs may take of the store: the lower of its plan's limit and its share; 0 is no limit.
local function most_bytes(lane, tenant_percent, limit)
  local share = math.floor(limit * tenant_percent / 100)
  if lane.most > 0 and share > 0 then
    return math.min(lane.most, share)
  end
  return math.max(lane.most, share)
end

-- The bytes that names add to a job: they stand in its record, its keys and its events. A name of more than 64 bytes also
-- makes Redis keep the record in a larger encoding.
local function name_bytes(tenant, idempotency)
  local long = math.max(#tenant, #idempotency) > 64
  return 6 * #tenant + (idempotency ~= '' and 2 * #idempotency + 350 or 0) + (long and 1600 or 0)
end

-- Writes the tenant's bytes and its money of the day from `lane`. more: fields to write with them.
local function write_account(lane, more)
  local fields = more or {}
  for _, part in ipairs({ 'limit_bytes', int(lane.limit), 'held_bytes', int(math.max(0, lane.held)), 'kept_bytes',
    int(lane.kept) }) do
    fields[#fields + 1] = part
  end
  if lane.day then
    for _, part in ipairs({ lane.day .. '.reserved', int(lane.reserved), lane.day .. '.spent', int(lane.spent) }) do
      fields[#fields + 1] = part
    end
  end
  redis.call('HSET', keys.account, unpack(fields))
end
