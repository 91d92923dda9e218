-- cancel: end a waiting job now, or ask the worker of a running one to stop it. Idempotent.
-- KEYS  job spec result waiting leases events
-- ARGV  job_id result result_ttl_s events_kept channel
-- Returns {"cancelled"} · {"requested"} · {"terminal", state} · {"unknown"}
local keys = { job = KEYS[1], spec = KEYS[2], result = KEYS[3], waiting = KEYS[4], leases = KEYS[5], events = KEYS[6] }
local state = redis.call('HGET', keys.job, 'state')
if not state then
  return { 'unknown' }
end
if state == 'running' then
  redis.call('HSET', keys.job, 'cancel', '1')
  return { 'requested' }
end
if is_terminal(state) then
  return { 'terminal', state }
end
close(keys, ARGV[1], 'cancelled', 'cancelled', ARGV[2],
  { result_ttl_s = ARGV[3], events_kept = ARGV[4], channel = ARGV[5] }, now_ms())
return { 'cancelled' }
