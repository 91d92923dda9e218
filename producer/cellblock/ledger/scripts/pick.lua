-- pick: whose job is next; nothing changes. The claim that follows finds out whether it still is.
-- KEYS  turns heads shares
-- Returns {"next", lane, job_id} · {"none"}: nothing could be claimed
local turns_key, heads_key, shares_key = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 or #ARGV ~= 0 then
  return { 'invalid', 'count' }
end
local flat, shares = redis.call('HGETALL', shares_key), {}
for i = 1, #flat, 2 do
  shares[flat[i]] = flat[i + 1]
end
local found, least, least_first
for field, number in pairs(shares) do
  local plan = field:match('^number:(.*)$')
  if plan then
    local first = turns_from(tonumber(number))
    local lane = redis.call('ZRANGE', turns_key, int(first), '(' .. int(first + TURNS), 'BYSCORE', 'LIMIT', 0, 1)[1]
    local pass = tonumber(shares['pass:' .. plan] or 0)
    if lane and (not found or pass < least or (pass == least and first < least_first)) then
      found, least, least_first = lane, pass, first
    end
  end
end
local job_id = found and redis.call('HGET', heads_key, found)
return job_id and { 'next', found, job_id } or { 'none' }
