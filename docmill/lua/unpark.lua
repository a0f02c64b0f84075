-- Brings back what was parked for a pause, of the jobs that are not paused any more.
-- ARGV: how many entries at most.  Returns how many were brought back.
open_writes()
local left = tonumber(ARGV[1])

local function bring_back(job)
  local rows = redis.call('XRANGE', k_parked(job), '-', '+', 'COUNT', left)
  for _, row in ipairs(rows) do
    local e = table_of(row[2])
    local stream = e.stream
    e.stream = nil
    -- without one it is nobody's
    if stream then send_back(stream, e) end
    redis.call('XDEL', k_parked(job), row[1])
    left = left - 1
  end
  if redis.call('XLEN', k_parked(job)) == 0 then
    redis.call('DEL', k_parked(job))
    redis.call('SREM', K_PARKED, job)
  end
end

for _, job in ipairs(redis.call('SMEMBERS', K_PARKED)) do
  -- what somebody spoiled stays, and keeps no other job's documents back
  if left > 0 and not job_of(job).is_paused then pcall(bring_back, job) end
end
return tonumber(ARGV[1]) - left
