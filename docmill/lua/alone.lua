-- Says which one entry a preprocessing worker works on, so that no other that it holds is blamed if the
-- process dies now. A script, because a plain write is refused while memory is full.
-- ARGV: consumer, entry id ('': none any more), lifetime in seconds
local key = P .. ':alone:' .. ARGV[1]
open_writes()
if ARGV[2] == '' then
  redis.call('DEL', key)
else
  redis.call('SET', key, ARGV[2], 'EX', ARGV[3])
end
return 'OK'
