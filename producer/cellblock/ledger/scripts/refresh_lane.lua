-- refresh_lane: look again whether a tenant's jobs could be claimed, should a change have been missed. Idempotent.
-- KEYS  of any of the tenant's jobs
-- ARGV  all: 1 to have messages sent for all that could be claimed, because they were lost
-- Returns {"refreshed", woken id, ...}
local a, invalid = arguments('lane slots# all#', OF_JOB)
if not a then
  return invalid
end
local lane = look(a)
local before = a.all == 1 and 0 or announced(lane)
local count = refresh_lane(a, lane)
local more = math.min(WOKEN_MAX, count - before)
return reply('refreshed', more > 0 and redis.call('ZRANGE', keys.ready, 0, more - 1) or {})
