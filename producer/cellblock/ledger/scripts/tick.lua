-- tick: the upkeep's leader begins a round; without a leader, the caller leads from now on. The lead is a lease with
-- a fence, its epoch: a change of the store on behalf of an earlier leader is refused.
-- When no round began for longer than quiet_ms, the store or the whole fleet was away. No worker could beat, so an
-- expired lease proves nothing, and every lease gets its full length again.
-- A lease longer than lease_ms, which means that the server's clock was put back, is cut to lease_ms.
-- Returns {"ticked", epoch, used, limit} · {"extended", epoch, used, limit, count} · {"follows", left_ms}: another
-- worker leads; nothing changed
local a, invalid = arguments('name lead_ms# lease_ms# quiet_ms# memory_bytes# measures#',
  { 'leader', 'upkeep', 'leases', 'workers', 'pressure' })
if not a then
  return invalid
end
local leader = redis.call('GET', keys.leader)
if leader and leader ~= a.name then
  return { 'follows', int(math.max(1, redis.call('PTTL', keys.leader))) }
end
local now = now_ms()
redis.call('SET', keys.leader, a.name, 'PX', int(a.lead_ms))
local before = tonumber(redis.call('HGET', keys.upkeep, 'ticked_ms') or now)
redis.call('HSET', keys.upkeep, 'ticked_ms', int(now))
local epoch = redis.call('HINCRBY', keys.upkeep, 'epoch', leader and 0 or 1)
redis.call('ZREMRANGEBYSCORE', keys.workers, '-inf', int(now))
local used, limit = 0, 0
if a.measures == 1 then
  used, limit = measure(a.memory_bytes, now)
end
for _, job_id in ipairs(redis.call('ZRANGE', keys.leases, '(' .. int(now + a.lease_ms), '+inf', 'BYSCORE')) do
  redis.call('ZADD', keys.leases, int(now + a.lease_ms), job_id)
end
if now - before <= a.quiet_ms then
  return { 'ticked', int(epoch), int(used), int(limit) }
end
local held = redis.call('ZRANGE', keys.leases, 0, -1)
for _, job_id in ipairs(held) do
  redis.call('ZADD', keys.leases, int(now + a.lease_ms), job_id)
end
return { 'extended', int(epoch), int(used), int(limit), int(#held) }
