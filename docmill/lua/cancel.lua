-- Cancels a job, or some of its documents. What an engine runs now is stopped by its worker.
-- The waiting entries stay in their streams and are dropped when a worker meets them: uncounted when the
-- whole job was cancelled, because they are counted here.
-- ARGV: job id, then custom ids; none: the whole job
-- Returns how many documents were cancelled, or newly marked; 0 when the job has ended; -1 when there is
-- no such job.
local job = ARGV[1]
if redis.call('EXISTS', k_job(job)) == 0 then return -1 end
local c = counters(job)
if c.is_cancelled or c.finished_at then return 0 end
open_writes()
if #ARGV == 1 then
  local waiting = c.submitted - c.done - c.running
  redis.call('HSET', k_job(job), 'cancelled_at', now_s(), 'sealed', 1, 'left', waiting)
  redis.call('HDEL', k_job(job), 'paused_at')
  redis.call('ZREM', K_OPEN, job)
  redis.call('HINCRBY', k_job(job), 'cancelled', waiting)
  finish_if_done(job)
  return waiting
end
local marked = 0
for at = 2, #ARGV do
  if redis.call('SISMEMBER', k_ids(job), ARGV[at]) == 1 then
    marked = marked + redis.call('SADD', k_cancelled(job), ARGV[at])
  end
end
if marked > 0 then redis.call('HSET', k_job(job), 'cancels', 1) end
return marked
