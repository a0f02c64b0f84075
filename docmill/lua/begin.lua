-- Marks entries as running before an engine takes them, and weeds out what must not run.
-- ARGV: group, consumer, then per entry: ready stream, entry id and the entry's fields i j b f (passed
--       because reading them here would copy the whole prompt into Lua)
-- Returns per entry: 'RUN', 'DROPPED' (its job was cancelled or is gone; acknowledged), or 'LOST'.
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
local started, unwanted = {}, {}
for at, e in ipairs(named_entries(group, consumer, 3, 6)) do
  if not e.is_owned then
    verdicts[at] = 'LOST'
  elseif is_wanted(e.j) then
    started[e.j] = started[e.j] or {}
    table.insert(started[e.j], e.i)
    verdicts[at] = 'RUN'
  else
    e.f = ARGV[e.at + 5]
    unwanted[#unwanted + 1] = e
    verdicts[at] = 'DROPPED'
  end
end
open_writes()
drop_entries(group, unwanted)
for _, e in ipairs(unwanted) do drop_unwanted(e) end
local started_at = now_s()
for job, requests in pairs(started) do
  local scored = {}
  for _, request in ipairs(requests) do
    scored[#scored + 1] = started_at
    scored[#scored + 1] = request
  end
  local num_started = redis.call('ZADD', K_RUNNING, 'NX', unpack(scored))
  if num_started > 0 then count(job, 'running', num_started) end
end
write_counts()
return verdicts
