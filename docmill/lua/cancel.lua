-- Cancels what waits in a job. What an engine runs now still ends and counts as it ends.
-- The waiting entries stay in their streams and are dropped, uncounted, when a worker meets them.
-- ARGV: job id.  Returns how many documents were cancelled (none of a job that has ended), or -1 when
-- there is no such job.
local job = ARGV[1]
if redis.call('EXISTS', k_job(job)) == 0 then return -1 end
if is_cancelled(job) then return 0 end
local c = counters(job)
if c.finished_at then return 0 end
local waiting = c.submitted - c.done - c.running
redis.call('HSET', k_job(job), 'cancelled_at', now_s(), 'sealed', 1)
redis.call('HINCRBY', k_job(job), 'cancelled', waiting)
finish_if_done(job)
return waiting
