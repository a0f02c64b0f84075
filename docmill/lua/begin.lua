-- Marks entries as running before an engine takes them, and weeds out what must not run.
-- ARGV: group, consumer, then per entry: ready stream, entry id
-- Returns per entry: 'RUN', 'DROPPED' (its job was cancelled or is gone; acknowledged), or 'LOST'.
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
for at = 3, #ARGV, 2 do
  local stream, entry, verdict = ARGV[at], ARGV[at + 1], 'LOST'
  local e = owns(stream, group, consumer, entry) and fields_of(stream, entry)
  if e and (redis.call('EXISTS', k_job(e.j)) == 0 or is_cancelled(e.j)) then
    drop_entry(stream, group, entry)
    drop_unwanted(e)
    verdict = 'DROPPED'
  elseif e then
    if redis.call('ZADD', K_RUNNING, 'NX', now_s(), e.i) == 1 then
      redis.call('HINCRBY', k_job(e.j), 'running', 1)
    end
    verdict = 'RUN'
  end
  verdicts[#verdicts + 1] = verdict
end
return verdicts
