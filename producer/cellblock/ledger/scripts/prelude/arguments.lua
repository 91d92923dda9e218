-- A script's declaration: its ARGV by name, a whole number where a # follows, and the names of its KEYS: `key_names`,
-- then `more`. `name...`, last in either, takes the rest as a list. Callers read the order from this call
-- (ledger/declarations.py). A call that does not fit changes nothing: returns nil and {"invalid", which}.
local function arguments(names, key_names, more)
  local at = 0
  for _, part in ipairs(more and { key_names, more } or { key_names }) do
    for _, name in ipairs(part) do
      at = at + 1
      keys[name] = KEYS[at]
    end
  end
  local last = more or key_names
  local list = last[#last]:match('^(.*)%.%.%.$')
  if #KEYS < (list and at - 1 or at) or (not list and #KEYS > at) then
    return nil, { 'invalid', 'keys' }
  end
  if list then
    keys[list] = { unpack(KEYS, at) }
  end
  local given, rest = {}, false
  at = 0
  for name, kind in names:gmatch('([%a_]+)([#.]*)') do
    at = at + 1
    local value = ARGV[at]
    if kind == '#' then
      value = whole(value)
    elseif kind == '...' then
      value, rest = { unpack(ARGV, at) }, true
    end
    if not value then
      return nil, { 'invalid', name }
    end
    given[name] = value
  end
  if not rest and at ~= #ARGV then
    return nil, { 'invalid', 'count' }
  end
  return given
end
