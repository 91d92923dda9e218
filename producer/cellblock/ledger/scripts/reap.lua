-- reap: decide on one job whose lease has run out: back into its queue, or ended as worker_lost.
-- ARGV  backoffs: milliseconds after the first, second, ... loss, separated by commas; the last one for all
--       later losses; each times spread_percent. quiet_ms: no job is judged when no round of the upkeep
--       began within this time
-- Returns {"live"} · {"gone"} · {"requeued"|"lost"|"cancelled", woken id, ...}: their messages have to be sent
local a, invalid = arguments('job_id quiet_ms# loss_limit# backoffs spread_percent# lost_result cancelled_result' .. COMMON, OF_JOB)
if not a then
  return invalid
end
local now = now_ms()
local ticked = redis.call('HGET', keys.upkeep, 'ticked_ms')
if ticked and now - tonumber(ticked) > a.quiet_ms then
  return { 'live' } -- the store was away in between: the next tick extends the lease
end
local expiry = redis.call('ZSCORE', keys.leases, a.job_id)
if not expiry or tonumber(expiry) > now then
  return { 'live' }
end
local job = whole_record()
if job.state ~= 'running' then
  redis.call('ZREM', keys.leases, a.job_id)
  return { 'gone' }
end
local losses = redis.call('HINCRBY', keys.job, 'losses', 1)
if job.cancel == '1' then
  return reply('cancelled', close(a, job, 'cancelled', 'cancelled', a.cancelled_result, now))
end
if losses >= a.loss_limit then
  return reply('lost', close(a, job, 'failed', 'worker_lost', a.lost_result, now))
end
local delay_ms, at = 0, 0
for given in a.backoffs:gmatch('%d+') do
  at = at + 1
  if at <= losses then
    delay_ms = math.floor(tonumber(given) * a.spread_percent / 100)
  end
end
local ids = requeue(a, job, 'lost', delay_ms, now, true)
emit('retried', a.job_id, now, job, 'worker_lost')
return reply('requeued', ids)
