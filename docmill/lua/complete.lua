-- Ends one ready entry with its result: result, result cache, followers, counters, acknowledgement in
-- one step, only while this consumer still owns the entry.
-- ARGV: ready stream, group, consumer, entry id, outcome, body bytes, result cache lifetime in seconds
-- Returns 'OK', or 'LOST' (somebody else has the entry; nothing was written).
local stream, group, consumer, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outcome, body, cache_ttl_s = ARGV[5], ARGV[6], tonumber(ARGV[7])
local e = owns(stream, group, consumer, entry) and fields_of(stream, entry)
if not e then return 'LOST' end
drop_entry(stream, group, entry)
leave_backlog(e.b)
local was_running = stop_running(e.j, e.i)
settle(e.j, outcome, e.h, body, 'run', was_running)
if outcome == 'succeeded' then
  if e.f ~= '' and cache_ttl_s > 0 then redis.call('SET', k_cached(e.f), body, 'EX', cache_ttl_s) end
  answer_followers(e.f, e.i, outcome, body)
else
  release_followers(e.f, e.i)
end
return 'OK'
