-- drop: forget a dead letter with its payload and history; its result stays. Idempotent under op.
-- Returns {"dropped"} · {"alive"}: it is not a dead letter; nothing changed
local a, invalid = arguments('job_id op', OF_JOB)
if not a then
  return invalid
end
local job = record('op_drop', 'tenant', 'bytes', 'kept', 'blobs', 'blob_bytes')
if redis.call('ZREM', keys.dead, a.job_id) == 0 then
  return { job.op_drop == a.op and 'dropped' or 'alive' }
end
redis.call('DEL', keys.spec, keys.attempts)
if job.kept then
  local payload = tonumber(job.bytes or '0')
  redis.call('HSET', keys.job, 'op_drop', a.op, 'kept', int(tonumber(job.kept) - payload))
  redis.call('HDEL', keys.job, 'bytes', 'blobs', 'blob_bytes')
  local parts_bytes = tonumber(job.blob_bytes or '0')
  store_bytes({ stored = 0 }, -parts_bytes)
  free_blobs(job.blobs or '', parts_bytes, job.tenant)
  redis.call('HINCRBY', keys.account, 'kept_bytes', int(-payload))
end
return { 'dropped' }
