-- resign: who leads the upkeep ends, and the next to ask may lead at once.
-- KEYS  leader
-- ARGV  name
-- Returns {"resigned"} · {"follows"}: another leads
if #KEYS ~= 1 or #ARGV ~= 1 then
  return { 'invalid', 'count' }
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return { 'follows' }
end
redis.call('DEL', KEYS[1])
return { 'resigned' }
