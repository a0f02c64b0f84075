-- A page of the dead letters, without the payloads.
-- ARGV: first id ('-' or '(' and the last one seen), how many
-- Returns per letter: its id, and its fields without d, p and a, but size (the payload's bytes), flat.
local page = {}
for at, row in ipairs(redis.call('XRANGE', K_DEAD, ARGV[1], '+', 'COUNT', ARGV[2])) do
  local fields = table_of(row[2])
  fields.size = tostring(#(fields.d or fields.p or ''))
  fields.d, fields.p, fields.a = nil, nil, nil
  page[at] = {row[1], flat_of(fields)}
end
return page
