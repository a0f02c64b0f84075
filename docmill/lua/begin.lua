-- Marks entries as running before an engine takes them, and weeds out what must not run now.
-- ARGV: group, consumer, then per entry: ready stream, entry id and the entry's fields i j b f (passed
--       because reading them here would copy the whole prompt into Lua)
-- Returns per entry: 'RUN', 'LOST', or what else became of it: 'DROPPED' (it was cancelled, or its job is
-- gone), 'PARKED' (its job is paused; moved to where unpark.lua finds it), 'CACHED' or 'FOLLOWS' (an equal
-- document was answered meanwhile, or runs now: it gets the same answer).
local group, consumer, verdicts = ARGV[1], ARGV[2], {}
local started, unwanted, parked, shared = {}, {}, {}, {}
local entries = named_entries(group, consumer, 3, 6)
local leaders = {} -- fingerprint -> who computes it, as lead_of has it
local fps, names, num_fps = {}, {}, 0
for _, e in ipairs(entries) do
  e.f = ARGV[e.at + 5]
  if e.is_owned and e.f ~= '' then
    num_fps = num_fps + 1
    fps[num_fps], names[num_fps] = e.f, k_lead(e.f)
  end
end
if num_fps > 0 then
  for at, lead in ipairs(redis.call('MGET', unpack(names))) do leaders[fps[at]] = lead end
end

-- Whether the entry, which does not lead its equals, got its answer otherwise: what was retried, or lay
-- here during a pause, may have been overtaken. If not, it leads from now on.
local function is_shared(e, lead)
  local whole = e.whole or fields_of(e.stream, e.id)
  if not whole then return false end
  if lead and is_lead_alive(lead) then
    stop_running(e.j, e.i)
    follow(e.f, whole, string.match(e.stream, '([^:]+):%d+$'), whole.p, 0, e.stream)
    return 'FOLLOWS'
  end
  local answer = redis.call('MGET', k_cached(e.f))[1] -- unlike GET, takes no offence at another type
  if answer then
    pcall(touch_answers, {e.f})
    -- pcall: a result that cannot be written keeps none of the others back
    pcall(settle, e.j, 'succeeded', whole.h, answer, 'cached', stop_running(e.j, e.i), e.f)
    leave_backlog(e.b)
    note('cached', 1)
    return 'CACHED'
  end
  leaders[e.f] = lead_of(e.i, e.stream, e.id)
  redis.call('SET', k_lead(e.f), leaders[e.f])
  return false
end

local function judge(e)
  local job = job_of(e.j)
  if job.has_cancels or job.is_paused then e.whole = fields_of(e.stream, e.id) end
  e.h = e.whole and e.whole.h
  if not is_wanted(e.j) or (e.h and is_cancelled_singly(e.j, e.h)) then return 'DROPPED', unwanted end
  if job.is_paused and e.whole then return 'PARKED', parked end
  local lead = leaders[e.f]
  local said = e.f ~= '' and not is_led_by(lead, e.i) and is_shared(e, lead)
  if said then return said, shared end
  started[e.j] = started[e.j] or {}
  return 'RUN', started[e.j]
end

open_writes()
for at, e in ipairs(entries) do
  verdicts[at] = 'LOST'
  if e.is_owned then
    local said, list = judge(e)
    verdicts[at] = said
    list[#list + 1] = said == 'RUN' and e.i or e
  end
end
drop_entries(group, shared)
for _, e in ipairs(unwanted) do drop_unwanted(e, e.stream) end
drop_entries(group, unwanted)
drop_entries(group, parked)
for _, e in ipairs(parked) do
  stop_running(e.j, e.i) -- begun twice, as after a lost reply
  park(e.whole, e.stream)
  rest_lead(e.whole, e.stream)
end
local started_at = string.format('%d', now_s()) -- a number would be spelled out anew for each
for job, requests in pairs(started) do
  local scored = {}
  for at, request in ipairs(requests) do
    scored[2 * at - 1], scored[2 * at] = started_at, request
  end
  local num_started = redis.call('ZADD', K_RUNNING, 'NX', unpack(scored))
  if num_started > 0 then count(job, 'running', num_started) end
end
write_counts()
return verdicts
