-- cancel: end a waiting job now, or ask the worker of a running one to stop it. Idempotent.
-- ARGV  control: the channel that workers listen on; frees_key: 1 to let another job be accepted under its key;
--       only_uploading: 1 to end it only while its parts for the blob store are missing
-- Returns {"cancelled", woken id, ...}: their messages have to be sent
--       · {"requested"} · {"terminal", state} · {"unknown"} · {"uploaded"}: its parts are there; nothing changed
local a, invalid = arguments('job_id result control frees_key# only_uploading#' .. COMMON, OF_JOB, { 'idempotency' })
if not a then
  return invalid
end
local job = whole_record()
if not job.state then
  return { 'unknown' }
end
if a.only_uploading == 1 and not job.uploading then
  return { 'uploaded' }
end
if job.state == 'running' then
  redis.call('HSET', keys.job, 'cancel', '1')
  redis.call('PUBLISH', a.control, a.job_id)
  return { 'requested' }
end
if is_terminal(job.state) then
  return { 'terminal', job.state }
end
if a.frees_key == 1 and job.idempotency then
  if (redis.call('GET', keys.idempotency) or ''):sub(1, #a.job_id + 1) == a.job_id .. ' ' then
    redis.call('DEL', keys.idempotency)
  end
  redis.call('HDEL', keys.job, 'idempotency', 'digest')
end
return reply('cancelled', close(a, job, 'cancelled', 'cancelled', a.result, now_ms()))
