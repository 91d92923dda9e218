-- seat: look again whether a tenant's jobs could be claimed, should a change have been missed. Idempotent.
-- KEYS  of_job, of any of the tenant's jobs
-- ARGV  all: 1 to have messages sent for all that could be claimed, because they were lost
-- Returns {"seated", woken id, ...}
local a, invalid = arguments('lane slots# all#')
if not a then
  return invalid
end
local before = a.all == 1 and 0 or announced(a)
return reply('seated', woken(a, before))
