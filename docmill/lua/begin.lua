-- Marks entries as running before an engine takes them, and weeds out what must not run.
-- ARGV: group, consumer, then per entry: ready stream, entry id and the entry's fields i j b f (passed
--       because reading them here would copy the whole prompt into Lua)
-- Returns per entry: 'RUN', 'DROPPED' (its job was cancelled or is gone; acknowledged), or 'LOST'.
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
local started_at, started = now_s(), {}
for at = 3, #ARGV, 6 do
  local stream, entry, verdict = ARGV[at], ARGV[at + 1], 'LOST'
  local e = {i = ARGV[at + 2], j = ARGV[at + 3], b = ARGV[at + 4], f = ARGV[at + 5]}
  if owns(stream, group, consumer, entry) then
    if is_wanted(e.j) then
      local is_new = redis.call('ZADD', K_RUNNING, 'NX', started_at, e.i)
      started[e.j] = (started[e.j] or 0) + is_new
      verdict = 'RUN'
    else
      drop_entry(stream, group, entry)
      drop_unwanted(e)
      verdict = 'DROPPED'
    end
  end
  verdicts[#verdicts + 1] = verdict
end
for job, count in pairs(started) do redis.call('HINCRBY', k_job(job), 'running', count) end
return verdicts
