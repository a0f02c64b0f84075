-- Marks entries as running before an engine takes them, and weeds out what must not run.
-- ARGV: group, consumer, then per entry: ready stream, entry id and the entry's fields i j b f (passed
--       because reading them here would copy the whole prompt into Lua)
-- Returns per entry: 'RUN', 'DROPPED' (its job was cancelled or is gone; acknowledged), or 'LOST'.
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
local wanted, started = {}, {}
for at = 3, #ARGV, 6 do
  local stream, entry, verdict = ARGV[at], ARGV[at + 1], 'LOST'
  local e = {i = ARGV[at + 2], j = ARGV[at + 3], b = ARGV[at + 4], f = ARGV[at + 5]}
  if owns(stream, group, consumer, entry) then
    if wanted[e.j] == nil then wanted[e.j] = is_wanted(e.j) end
    if wanted[e.j] then
      local requests = started[e.j] or {}
      started[e.j] = requests
      requests[#requests + 1] = e.i
      verdict = 'RUN'
    else
      drop_entry(stream, group, entry)
      drop_unwanted(e)
      verdict = 'DROPPED'
    end
  end
  verdicts[#verdicts + 1] = verdict
end
-- a first write that needs memory would be refused when there is none, and only answers free any
redis.call('ZREM', K_RUNNING, '')
local started_at = now_s()
for job, requests in pairs(started) do
  local scored = {}
  for _, request in ipairs(requests) do
    scored[#scored + 1] = started_at
    scored[#scored + 1] = request
  end
  local count = redis.call('ZADD', K_RUNNING, 'NX', unpack(scored))
  if count > 0 then redis.call('HINCRBY', k_job(job), 'running', count) end
end
return verdicts
