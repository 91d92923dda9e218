-- uploaded: the parts of an admitted job are in the blob store: from now on it can be claimed. Idempotent.
-- ARGV  blobs, blob_bytes: these parts, which are removed where the job has ended meanwhile
-- Returns {"ready", woken id, ...}: their messages have to be sent · {"gone"}: it runs already, or has ended
local a, invalid = arguments('job_id lane slots# blobs blob_bytes#', OF_JOB)
if not a then
  return invalid
end
local job = record('state', 'rank', 'uploading')
if job.state ~= 'queued' then
  free_unused_blobs(a.blobs, a.blob_bytes, a.lane:match('^[^/]+'))
  return { 'gone' }
end
if not job.uploading then
  return { 'ready', a.job_id } -- resent: one message too many is harmless
end
redis.call('ZREM', keys.delayed, a.job_id)
redis.call('HDEL', keys.job, 'uploading')
local lane = look(a)
local before = announced(lane)
redis.call('HSET', keys.job, 'queued_ms', int(now_ms()))
redis.call('ZADD', keys.ready, job.rank, a.job_id)
lane.ready = lane.ready + 1
return reply('ready', woken(a, lane, before, true))
