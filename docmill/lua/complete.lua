-- Ends ready entries with their results: result, result cache, followers, counters, acknowledgement in
-- one step, each only while this consumer still owns it.
-- ARGV: group, consumer, result cache lifetime in seconds, then per entry: ready stream, entry id, the
--       entry's fields i j b f h (passed because reading them here would copy the whole prompt into
--       Lua), outcome, body bytes
-- Returns per entry: 'OK', 'LOST' (somebody else has it; nothing was written), or why it failed.
local group, consumer, cache_ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local entries = named_entries(group, consumer, 4, 9)
local owned, requests, running = {}, {}, {}
local shared, leads, followed, answered = {}, {}, {}, {}
for _, e in ipairs(entries) do
  if e.is_owned then
    e.f, e.h, e.outcome, e.body = unpack(ARGV, e.at + 5, e.at + 8)
    owned[#owned + 1] = e
    requests[#requests + 1] = e.i
    if e.f ~= '' then
      shared[#shared + 1] = e.f
      leads[#leads + 1] = k_lead(e.f)
      followed[#followed + 1] = k_followers(e.f)
    end
  end
end
