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
drop_entry(stream, group, entry)
if not e then return 'LOST' end
local was_running = stop_running(e.j, e.i)
if redis.call('EXISTS', k_job(e.j)) == 0 or is_cancelled(e.j) then
  leave_backlog(e.b)
  if was_running and is_cancelled(e.j) then
    redis.call('HINCRBY', k_job(e.j), 'cancelled', 1)
    finish_if_done(e.j)
  end
  release_followers(e.f or '', e.i)
  return 'DROPPED'
end
local deliveries = tonumber(e.n) + tonumber(ARGV[6])
if deliveries > tonumber(ARGV[7]) then
  local flat = {'stream', stream, 'consumer', owner, 'reason', 'delivery_limit'}
  for name, value in pairs(e) do flat[#flat + 1] = name; flat[#flat + 1] = value end
  redis.call('XADD', K_DEAD, 'MAXLEN', '~', 100000, '*', unpack(flat))
  leave_backlog(e.b)
  settle(e.j, 'failed', e.h, ARGV[8], 'run', was_running)
  release_followers(e.f or '', e.i)
  return 'DEAD'
end
e.n = deliveries
local flat = {}
for name, value in pairs(e) do flat[#flat + 1] = name; flat[#flat + 1] = value end
redis.call('XADD', stream, '*', unpack(flat))
return 'BACK'
