-- resign: the upkeep's leader gives up its lead, so that the next worker to tick leads at once.
-- Returns {"resigned"} · {"follows"}: another worker leads
local a, invalid = arguments('name', { 'leader' })
if not a then
  return invalid
end
if redis.call('GET', keys.leader) ~= a.name then
  return { 'follows' }
end
redis.call('DEL', keys.leader)
return { 'resigned' }
