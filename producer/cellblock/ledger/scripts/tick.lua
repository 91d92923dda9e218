-- tick: who leads the upkeep begins a round; if nobody does, the caller leads from now on. The lead is a lease with
-- a fence, its epoch: what changes the store on behalf of an earlier leader is refused.
-- When no round began for longer than quiet_ms, the store was away or the whole
-- fleet was: nobody could beat, an expired lease says nothing, and every lease gets its full length again.
-- A lease further in the future than can be, because the server's clock was put back, is brought to where it can.
-- KEYS  leader upkeep leases workers pressure
-- ARGV  name lead_ms lease_ms quiet_ms memory_bytes measures
-- Returns {"ticked", epoch, used, limit} · {"extended", epoch, used, limit, count} · {"follows", left_ms}: another
-- leads; nothing changed
local leader_key, upkeep_key, leases_key, workers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
keys.pressure = KEYS[5]
if #ARGV ~= 6 or #KEYS ~= 5 then
  return { 'invalid', 'count' }
end
local numbers = {}
for i, name in ipairs({ 'lead_ms', 'lease_ms', 'quiet_ms', 'memory_bytes', 'measures' }) do
  numbers[name] = whole(ARGV[i + 1])
  if not numbers[name] then
    return { 'invalid', name }
  end
end
local lease_ms, quiet_ms = numbers.lease_ms, numbers.quiet_ms
local leader = redis.call('GET', leader_key)
if leader and leader ~= ARGV[1] then
  return { 'follows', int(math.max(1, redis.call('PTTL', leader_key))) }
end
local now = now_ms()
redis.call('SET', leader_key, ARGV[1], 'PX', int(numbers.lead_ms))
local before = tonumber(redis.call('HGET', upkeep_key, 'ticked_ms') or now)
redis.call('HSET', upkeep_key, 'ticked_ms', int(now))
local epoch = redis.call('HINCRBY', upkeep_key, 'epoch', leader and 0 or 1)
redis.call('ZREMRANGEBYSCORE', workers_key, '-inf', int(now))
local used, limit = 0, 0
if numbers.measures == 1 then
  used, limit = measure(numbers.memory_bytes, now)
end
for _, job_id in ipairs(redis.call('ZRANGE', leases_key, '(' .. int(now + lease_ms), '+inf', 'BYSCORE')) do
  redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
end
if now - before <= quiet_ms then
  return { 'ticked', int(epoch), int(used), int(limit) }
end
local held = redis.call('ZRANGE', leases_key, 0, -1)
for _, job_id in ipairs(held) do
  redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
end
return { 'extended', int(epoch), int(used), int(limit), int(#held) }
