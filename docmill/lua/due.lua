-- Brings back entries whose time for another try has come.
-- ARGV: how many at most.  Returns how many were taken off the list.
open_writes()
local due = redis.call('ZRANGEBYSCORE', K_LATER, '-inf', now_s(), 'LIMIT', 0, ARGV[1])
for _, request in ipairs(due) do
  local e = table_of(redis.call('HGETALL', k_later(request)))
  redis.call('ZREM', K_LATER, request)
  redis.call('DEL', k_later(request))
  local stream = e.stream
  e.stream = nil
  if stream and is_entry_wanted(e) then
    redis.call('XADD', stream, '*', unpack(flat_of(e)))
  elseif stream then
    drop_unwanted(e)
  end
end
write_counts()
return #due
