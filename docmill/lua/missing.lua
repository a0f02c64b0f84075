-- How long consumers' heartbeats have been missing, as far as it is remembered: kept here, so that any
-- reaper may look next, and a Redis that comes back with its data lost gives the living time.
-- ARGV: how long a miss is remembered without another look, in milliseconds; then consumers
-- Returns per consumer: the milliseconds since it was first missed, or -1: it lives.
open_writes()
local memory_ms, missing_ms = tonumber(ARGV[1]), {}
for at = 2, #ARGV do
  local absent = P .. ':absent:' .. ARGV[at]
  if redis.call('EXISTS', P .. ':heartbeat:' .. ARGV[at]) == 1 then
    redis.call('DEL', absent)
    missing_ms[at - 1] = 0 - 1
  else
    redis.call('SET', absent, 1, 'NX', 'PX', memory_ms)
    missing_ms[at - 1] = memory_ms - redis.call('PTTL', absent)
  end
end
return missing_ms
