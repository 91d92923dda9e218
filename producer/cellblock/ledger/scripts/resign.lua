-- resign: who leads the upkeep ends, and the next to ask may lead at once.
-- Returns {"resigned"} · {"follows"}: another leads
local a, invalid = arguments('name', { 'leader' })
if not a then
  return invalid
end
if redis.call('GET', keys.leader) ~= a.name then
  return { 'follows' }
end
redis.call('DEL', keys.leader)
return { 'resigned' }
