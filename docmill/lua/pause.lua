-- Lets a job rest, or go on: while it is paused no engine begins its documents; what runs still ends.
-- ARGV: job id, 1 to pause or 0 to go on
-- Returns 1, 0 when there was nothing to do (it is so already, or the job has ended), or -1 when there is
-- no such job.
local job = ARGV[1]
if redis.call('EXISTS', k_job(job)) == 0 then return -1 end
local c = counters(job)
open_writes()
local all = parts_jobs_of(job) -- with it rest the parts of its documents
all[#all + 1] = job
local changed = 0
if ARGV[2] == '0' then
  for _, id in ipairs(all) do changed = redis.call('HDEL', k_job(id), 'paused_at') end
elseif not (c.is_cancelled or c.finished_at) then
  for _, id in ipairs(all) do changed = redis.call('HSETNX', k_job(id), 'paused_at', now_s()) end
end
return changed
