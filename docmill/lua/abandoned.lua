-- Seals jobs whose producer has been silent for long: it is gone, and an open job never ends.
-- ARGV: seconds of silence, how many jobs at most.  Returns how many were looked at.
open_writes()
local silent = redis.call('ZRANGEBYSCORE', K_OPEN, '-inf', now_s() - ARGV[1], 'LIMIT', 0, ARGV[2])
for _, job in ipairs(silent) do
  redis.call('ZREM', K_OPEN, job)
  if redis.call('EXISTS', k_job(job)) == 1 then
    redis.call('HSET', k_job(job), 'sealed', 1)
    finish_if_done(job)
  end
end
return #silent
