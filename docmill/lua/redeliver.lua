-- Hands one pending entry back, so that anybody may read it again: at a worker's shutdown, for another
-- try after a failure, or by the reaper when its owner's heartbeat is gone. A delivery that counts and is
-- one too many ends it as a dead letter instead.
-- ARGV: stream, group, owner, entry id, 1 if this counts as a delivery else 0, delivery limit, delay in
--       seconds, code, body bytes, message and traceback digest for the dead letter, owner's heartbeat key
--       ('': the owner itself asks), the reaper's token ('': no reaper asks)
-- Returns 'BACK', 'LATER' (due.lua brings it back), 'DEAD', 'DROPPED' (it was cancelled, or its job is
-- gone), or 'LOST' (not the owner's any more, the owner lives, or another reaper has taken over).
local stream, group, owner, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delay_s, heartbeat, token = tonumber(ARGV[7]), ARGV[12], ARGV[13]
if heartbeat ~= '' and redis.call('EXISTS', heartbeat) == 1 then return 'LOST' end
if token ~= '' and string.match(redis.call('GET', K_REAPER) or '', '^%d+') ~= token then return 'LOST' end
if not owns(stream, group, owner, entry) then return 'LOST' end
local e = fields_of(stream, entry)
local function drop() drop_entries(group, {{stream = stream, id = entry}}) end
if not e then
  drop()
  return 'LOST'
end
local function give_up(code, message)
  open_writes()
  bury(stream, owner, e, code, ARGV[9], message, ARGV[11])
  drop() -- last, as bury.lua has it
  write_counts()
  return 'DEAD'
end
if not is_whole(e) then return give_up('malformed', 'the entry lacks fields of a document') end
if not is_entry_wanted(e) then
  drop()
  drop_unwanted(e, stream)
  write_counts()
  return 'DROPPED'
end
-- what no engine had begun cannot have been the cause; preprocessing has no such mark
local has_begun = redis.call('ZSCORE', K_RUNNING, e.i) or starts_with(stream, k_intake(''))
if ARGV[5] == '1' and has_begun then
  if tonumber(e.n) >= tonumber(ARGV[6]) then return give_up(ARGV[8], ARGV[10]) end
  e.n = tonumber(e.n) + 1
end
drop()
stop_running(e.j, e.i)
write_counts()
if delay_s > 0 then
  e.stream = stream
  redis.call('HSET', k_later(e.i), unpack(flat_of(e)))
  redis.call('ZADD', K_LATER, now_s() + delay_s, e.i)
  return 'LATER'
end
send_back(stream, e)
return 'BACK'
