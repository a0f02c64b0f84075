-- Lets another reaper lead.
-- ARGV: holder.  Returns 1, or 0 when it did not lead.
local holder = string.match(redis.call('GET', K_REAPER) or '', '^%d+ (.*)$')
if holder ~= ARGV[1] then return 0 end
return redis.call('DEL', K_REAPER)
