-- Set or unset one override, and write to the audit who did it, in one step.
-- KEYS  governance audit
-- ARGV  tenant key value (JSON; "" unsets) who audit_kept
-- Returns the id of the audit's entry, "" if there was nothing to unset
local field = ARGV[1] .. ' ' .. ARGV[2]
local before = redis.call('HGET', KEYS[1], field) or ''
if ARGV[3] == '' and before == '' then
  return ''
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], field)
else
  redis.call('HSET', KEYS[1], field, ARGV[3])
end
return redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*',
  'who', ARGV[4], 'tenant', ARGV[1], 'key', ARGV[2], 'before', before, 'after', ARGV[3])
