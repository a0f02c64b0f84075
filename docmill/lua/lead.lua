-- Makes the caller the shard's one reaper, or keeps it so.
-- ARGV: holder, lifetime in milliseconds
-- Returns the token that redeliver.lua wants, greater for each new holder; 0 while somebody else leads.
open_writes()
local token, holder = string.match(redis.call('GET', K_REAPER) or '', '^(%d+) (.*)$')
if token and holder ~= ARGV[1] then return 0 end
if not token then token = redis.call('INCR', K_REAPER .. ':token') end
redis.call('SET', K_REAPER, token .. ' ' .. ARGV[1], 'PX', ARGV[2])
return tonumber(token)
