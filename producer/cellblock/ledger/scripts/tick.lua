-- tick: a reaper begins its round. When none did for longer than quiet_ms, the store was away or the whole
-- fleet was: nobody could beat, an expired lease says nothing, and every lease gets its full length again.
-- A lease further in the future than can be, because the server's clock was put back, is brought to where it can.
-- KEYS  ticked leases
-- ARGV  lease_ms quiet_ms
-- Returns {"ticked"} · {"extended", count}
local ticked_key, leases_key = KEYS[1], KEYS[2]
local lease_ms, quiet_ms = whole(ARGV[1]), whole(ARGV[2])
if #ARGV ~= 2 or #KEYS ~= 2 then
  return { 'invalid', 'count' }
end
if not lease_ms or not quiet_ms then
  return { 'invalid', lease_ms and 'quiet_ms' or 'lease_ms' }
end
local now = now_ms()
local before = tonumber(redis.call('GET', ticked_key) or now)
redis.call('SET', ticked_key, int(now))
for _, job_id in ipairs(redis.call('ZRANGE', leases_key, '(' .. int(now + lease_ms), '+inf', 'BYSCORE')) do
  redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
end
if now - before <= quiet_ms then
  return { 'ticked' }
end
local held = redis.call('ZRANGE', leases_key, 0, -1)
for _, job_id in ipairs(held) do
  redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
end
return { 'extended', int(#held) }
