-- Hands one pending entry back, so that anybody may read it again: at a worker's shutdown, or by the
-- reaper when its owner's heartbeat is gone. Over the delivery limit it becomes a failed result and a
-- dead letter instead.
-- ARGV: stream, group, owner, entry id, owner's heartbeat key ('' = the owner itself asks),
--       1 if this counts as a delivery else 0, delivery limit, body bytes for the failed result
-- Returns 'BACK', 'DEAD', 'DROPPED' (its job was cancelled or is gone), or 'LOST' (not the owner's any
-- more, or the owner lives).
local stream, group, owner, entry, heartbeat = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if heartbeat ~= '' and redis.call('EXISTS', heartbeat) == 1 then return 'LOST' end
if not owns(stream, group, owner, entry) then return 'LOST' end
local e = fields_of(stream, entry)
drop_entries(group, {{stream = stream, id = entry}})
if not e then return 'LOST' end
if not is_whole(e) then
  bury(stream, owner, e, 'malformed', '')
  return 'DEAD'
end
if not is_wanted(e.j) then
  drop_unwanted(e)
  write_counts()
  return 'DROPPED'
end
local deliveries = tonumber(e.n) + tonumber(ARGV[6])
if deliveries > tonumber(ARGV[7]) then
  bury(stream, owner, e, 'delivery_limit', ARGV[8])
  return 'DEAD'
end
stop_running(e.j, e.i)
write_counts()
e.n = deliveries
local flat = {}
for name, value in pairs(e) do flat[#flat + 1] = name; flat[#flat + 1] = value end
redis.call('XADD', stream, '*', unpack(flat))
return 'BACK'
