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

local function cancel_whole(id, counts)
  local waiting = counts.submitted - counts.done - counts.running
  redis.call('HSET', k_job(id), 'cancelled_at', now_s(), 'sealed', 1, 'left', waiting)
  redis.call('HDEL', k_job(id), 'paused_at')
  redis.call('ZREM', K_OPEN, id)
  redis.call('HINCRBY', k_job(id), 'cancelled', waiting)
  finish_if_done(id)
  return waiting
end

-- With a document go its parts.
local function cancel_parts(parts)
  local counts = counters(parts)
  if not (counts.finished_at or counts.is_cancelled) then cancel_whole(parts, counts) end
end

local num_cancelled = 0
if #ARGV == 1 then
  num_cancelled = cancel_whole(job, c)
  for _, parts in ipairs(parts_jobs_of(job)) do cancel_parts(parts) end
else
  for at = 2, #ARGV do
    if redis.call('SISMEMBER', k_ids(job), ARGV[at]) == 1 then
      num_cancelled = num_cancelled + redis.call('SADD', k_cancelled(job), ARGV[at])
    end
  end
  if num_cancelled > 0 then redis.call('HSET', k_job(job), 'cancels', 1) end
  for at = 2, num_cancelled > 0 and #ARGV or 0 do
    local is_read, parts = pcall(redis.call, 'HGET', k_splits(job), ARGV[at])
    if is_read and parts then cancel_parts(parts) end
  end
end
write_counts()
return num_cancelled
