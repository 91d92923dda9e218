-- extend: after an outage, give every lease its full length again, once for all reapers.
-- Nobody could beat while the store was away, so an expired lease says nothing about its worker.
-- KEYS  leases extended
-- ARGV  lease_ms
-- Returns {"extended", count} · {"done"}: another reaper did it within the last lease
local leases_key, extended_key = KEYS[1], KEYS[2]
if not whole(ARGV[1]) or #ARGV ~= 1 or #KEYS ~= 2 then
  return { 'invalid', 'lease_ms' }
end
if not redis.call('SET', extended_key, '1', 'NX', 'PX', ARGV[1]) then
  return { 'done' }
end
local until_ms = now_ms() + tonumber(ARGV[1])
local extended = 0
for _, job_id in ipairs(redis.call('ZRANGEBYSCORE', leases_key, '-inf', until_ms)) do
  redis.call('ZADD', leases_key, 'XX', int(until_ms), job_id)
  extended = extended + 1
end
return { 'extended', int(extended) }
