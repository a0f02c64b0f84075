-- Marks entries as running before an engine takes them, and weeds out what must not run now.
-- ARGV: group, consumer, then per entry: ready stream, entry id and the entry's fields i j b f (passed
--       because reading them here would copy the whole prompt into Lua)
-- Returns per entry: 'RUN', 'DROPPED' (it was cancelled, or its job is gone; acknowledged), 'PARKED' (its
-- job is paused; moved to where unpark.lua finds it), or 'LOST'.
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
local started, unwanted, parked = {}, {}, {}

local function judge(e)
  local job = job_of(e.j)
  if job.has_cancels or job.is_paused then e.whole = fields_of(e.stream, e.id) end
  e.h = e.whole and e.whole.h
  if not is_wanted(e.j) or (e.h and is_cancelled_singly(e.j, e.h)) then return 'DROPPED', unwanted end
  if job.is_paused and e.whole then return 'PARKED', parked end
  started[e.j] = started[e.j] or {}
  return 'RUN', started[e.j]
end

for at, e in ipairs(named_entries(group, consumer, 3, 6)) do
  e.f = ARGV[e.at + 5]
  verdicts[at] = 'LOST'
  if e.is_owned then
    local said, list = judge(e)
    verdicts[at] = said
    list[#list + 1] = said == 'RUN' and e.i or e
  end
end
open_writes()
drop_entries(group, unwanted)
for _, e in ipairs(unwanted) do drop_unwanted(e) end
drop_entries(group, parked)
for _, e in ipairs(parked) do
  stop_running(e.j, e.i) -- begun twice, as after a lost reply
  e.whole.stream = e.stream
  redis.call('XADD', k_parked(e.j), '*', unpack(flat_of(e.whole)))
  redis.call('SADD', K_PARKED, e.j)
  release_followers(e.f, e.i) -- other jobs' documents must not wait for this one's pause to end
end
local started_at = math.floor(now_s()) -- a fraction would be parsed anew at each insert
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
