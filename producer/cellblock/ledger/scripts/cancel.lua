-- cancel: end a waiting job now, or ask the worker of a running one to stop it. Idempotent.
-- KEYS  of_job
-- ARGV  control: the channel that workers listen on
-- Returns {"cancelled", woken id, ...}: their messages have to be sent
--       · {"requested"} · {"terminal", state} · {"unknown"}
local a, invalid = arguments('job_id result control' .. COMMON)
if not a then
  return invalid
end
local state = redis.call('HGET', keys.job, 'state')
if not state then
  return { 'unknown' }
end
if state == 'running' then
  redis.call('HSET', keys.job, 'cancel', '1')
  redis.call('PUBLISH', a.control, a.job_id)
  return { 'requested' }
end
if is_terminal(state) then
  return { 'terminal', state }
end
return reply('cancelled', close(a, 'cancelled', 'cancelled', a.result, now_ms()))
