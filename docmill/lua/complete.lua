-- Ends ready entries with their results: result, result cache, followers, counters, acknowledgement in
-- one step, each only while this consumer still owns it.
-- ARGV: group, consumer, result cache lifetime in seconds (0: nothing is kept) and bytes, then per entry:
--       ready stream, entry id, the entry's fields i j b f h (passed because reading them here would copy
--       the whole prompt into Lua), outcome (succeeded, expired or cancelled), body bytes
-- Returns per entry: 'OK', 'LOST' (somebody else has it; nothing was written), or why it failed.
local group, consumer, cache_ttl_s, cache_max_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local entries = named_entries(group, consumer, 5, 9)
local owned, requests, shared, leads, followed = {}, {}, {}, {}, {}
for _, e in ipairs(entries) do
  e.f, e.h, e.outcome, e.body = unpack(ARGV, e.at + 5, e.at + 8)
  if e.is_owned then
    owned[#owned + 1] = e
    requests[#requests + 1] = e.i
    if e.f ~= '' then
      shared[#shared + 1] = e.f
      e.lead, e.followers = k_lead(e.f), k_followers(e.f)
      leads[#leads + 1] = e.lead
      followed[#followed + 1] = e.followers
    end
  end
end
if #owned == 0 then return verdicts_on(entries) end

-- who goes on in their place needs their prompts
for _, e in ipairs(owned) do
  if e.outcome ~= 'succeeded' and e.f ~= '' and redis.call('EXISTS', e.followers) == 1 then
    e.p = (fields_of(e.stream, e.id) or {}).p
  end
end
drop_entries(group, owned)
local running = {} -- request id -> since when
for at, since in ipairs(redis.call('ZMSCORE', K_RUNNING, unpack(requests))) do
  running[requests[at]] = since
end
redis.call('ZREM', K_RUNNING, unpack(requests))
local leaders, spent = {}, {} -- fingerprint -> who leads, as lead_of has it; markers that go with their leaders
local has_followers = false
if #shared > 0 then
  has_followers = redis.call('EXISTS', unpack(followed)) > 0
  for at, leader in ipairs(redis.call('MGET', unpack(leads))) do leaders[shared[at]] = leader end
end

-- Those who wait for the entry's answer, flat; whoever leads them.
local function followers_of(e)
  return has_followers and e.f ~= '' and redis.call('LRANGE', e.followers, 0, -1) or {}
end

-- Whether no marker is needed any more: the entry's own, or one that points at nothing.
local function is_spent(e)
  local lead = leaders[e.f]
  if not lead or is_led_by(lead, e.i) then return lead end
  lead = redis.call('MGET', e.lead)[1]
  return lead and not is_lead_alive(lead)
end

local answers = {} -- fingerprint -> body, to be kept

local function complete(e)
  leave_backlog(e.b)
  local was_running = running[e.i]
  running[e.i] = nil
  if was_running then count(e.j, 'running', -1) end
  if e.outcome ~= 'succeeded' then
    settle(e.j, e.outcome, e.h, e.body, 'run', was_running)
    pass_lead(e, e.stream)
    return 'OK'
  end
  local flat = followers_of(e)
  settle(e.j, e.outcome, e.h, e.body, 'run', was_running, #flat > 0 and e.f)
  if e.f ~= '' and cache_ttl_s > 0 then answers[e.f] = e.body end
  if is_spent(e) then spent[#spent + 1] = e.lead end
  -- before they have their answers: nobody may get two
  if #flat > 0 then redis.call('DEL', e.followers) end
  for at = 1, #flat, FOLLOWER_ITEMS do
    leave_backlog(flat[at + 3])
    pcall(settle, flat[at + 1], e.outcome, flat[at + 4], e.body, 'follower', false, e.f)
    note('tokens_saved', tonumber(flat[at + 6]) or 0)
  end
  return 'OK'
end

local verdicts = verdicts_on(entries, complete)
if #spent > 0 then redis.call('DEL', unpack(spent)) end
-- pcall: what somebody spoiled must not cost the jobs their counts
pcall(remember_answers, answers, cache_ttl_s, cache_max_bytes)
write_counts()
return verdicts
