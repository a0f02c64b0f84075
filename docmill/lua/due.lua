-- Brings back entries whose time for another try has come.
-- ARGV: how many at most.  Returns how many were taken off the list.
local PUT_OFF_S = 60
open_writes()
local due = redis.call('ZRANGEBYSCORE', K_LATER, '-inf', now_s(), 'LIMIT', 0, ARGV[1])

local function bring_back(request)
  local e = table_of(redis.call('HGETALL', k_later(request)))
  local stream = e.stream
  e.stream = nil
  if stream and is_entry_wanted(e) then
    send_back(stream, e)
  elseif stream then
    drop_unwanted(e, stream)
  end
  redis.call('DEL', k_later(request))
  redis.call('ZREM', K_LATER, request)
end

for _, request in ipairs(due) do
  -- what somebody spoiled stays, out of the others' way
  if not pcall(bring_back, request) then redis.call('ZADD', K_LATER, now_s() + PUT_OFF_S, request) end
end
write_counts()
return #due
