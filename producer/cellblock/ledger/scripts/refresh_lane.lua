-- refresh_lane: compute anew which of a tenant's jobs could be claimed, in case a change was missed. Idempotent.
-- KEYS  those of any of the tenant's jobs
-- ARGV  all: 1 to have messages sent for all claimable jobs, because earlier messages were lost
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
