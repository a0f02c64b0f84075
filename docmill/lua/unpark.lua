-- Brings back what was parked for a pause, of the jobs that are not paused any more.
-- ARGV: how many entries at most.  Returns how many were brought back.
open_writes()
local left = tonumber(ARGV[1])
for _, job in ipairs(redis.call('SMEMBERS', K_PARKED)) do
  if left > 0 and not job_of(job).is_paused then
    local rows = redis.call('XRANGE', k_parked(job), '-', '+', 'COUNT', left)
    for _, row in ipairs(rows) do
      local e = table_of(row[2])
      local stream = e.stream
      e.stream = nil
      redis.call('XDEL', k_parked(job), row[1])
      redis.call('XADD', stream, '*', unpack(flat_of(e)))
    end
    left = left - #rows
    if redis.call('XLEN', k_parked(job)) == 0 then
      redis.call('DEL', k_parked(job))
      redis.call('SREM', K_PARKED, job)
    end
  end
end
return tonumber(ARGV[1]) - left
