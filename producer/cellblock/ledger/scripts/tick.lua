-- tick: a reaper begins its round. When none did for longer than quiet_ms, the store was away or the whole
-- fleet was: nobody could beat, an expired lease says nothing, and every lease gets its full length again.
-- What lies in the future, because the server's clock was put back, is brought to where it can be.
-- KEYS  ticked leases watermarks
-- ARGV  lease_ms quiet_ms
-- Returns {"ticked"} · {"extended", count}
local ticked_key, leases_key, watermarks_key = KEYS[1], KEYS[2], KEYS[3]
local lease_ms, quiet_ms = whole(ARGV[1]), whole(ARGV[2])
if #ARGV ~= 2 or #KEYS ~= 3 then
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
local marks = redis.call('HGETALL', watermarks_key)
for i = 1, #marks, 2 do
  if tonumber(marks[i + 1]) > now then
    redis.call('HSET', watermarks_key, marks[i], int(now))
  end
end
if now - before <= quiet_ms then
  return { 'ticked' }
end
local held = redis.call('ZRANGE', leases_key, 0, -1)
for _, job_id in ipairs(held) do
  redis.call('ZADD', leases_key, int(now + lease_ms), job_id)
end
return { 'extended', int(#held) }
