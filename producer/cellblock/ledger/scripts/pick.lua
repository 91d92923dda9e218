-- pick: find the next `count` jobs to claim; nothing changes. The claims that follow find out whether they still are.
-- Returns {"next", lane, job_id, lane, job_id, ...}: in the order of single claims, as if no lane ran out of jobs. Where a
--         lane comes again, job_id is "": read it from the lane's ready jobs · {"none"}: nothing could be claimed
local a, invalid = arguments('count#', { 'lane_turns', 'lane_heads', 'plan_shares' })
if not a then
  return invalid
end
if a.count == 0 then
  return { 'invalid', 'count' }
end
local flat, shares = redis.call('HGETALL', keys.plan_shares), {}
for i = 1, #flat, 2 do
  shares[flat[i]] = flat[i + 1]
end
local plans = {}
for field, number in pairs(shares) do
  local plan = field:match('^number:(.*)$')
  if plan then
    local first = turns_from(tonumber(number))
    local lanes = redis.call('ZRANGE', keys.lane_turns, int(first), '(' .. int(first + TURNS), 'BYSCORE', 'LIMIT', 0, int(a.count))
    if #lanes > 0 then
      plans[#plans + 1] = { first = first, lanes = lanes, served = 0, pass = tonumber(shares['pass:' .. plan] or 0),
        step = math.floor(STRIDE / tonumber(shares['weight:' .. plan] or 1)) }
    end
  end
end
if #plans == 0 then
  return { 'none' }
end
local found = { 'next' }
for _ = 1, a.count do
  local due = plans[1]
  for _, plan in ipairs(plans) do
    if plan.pass < due.pass or (plan.pass == due.pass and plan.first < due.first) then
      due = plan
    end
  end
  local lane = due.lanes[due.served % #due.lanes + 1]
  local again = due.served >= #due.lanes
  found[#found + 1] = lane
  found[#found + 1] = not again and redis.call('HGET', keys.lane_heads, lane) or ''
  due.served = due.served + 1
  due.pass = due.pass + due.step
end
return found
