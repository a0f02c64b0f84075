-- Ends ready entries with their results: result, result cache, followers, counters, acknowledgement in
-- one step, each only while this consumer still owns it.
-- ARGV: group, consumer, result cache lifetime in seconds, then per entry: ready stream, entry id, the
--       entry's fields i j b f h (passed because reading them here would copy the whole prompt into
--       Lua), outcome (succeeded, expired or cancelled), body bytes
-- Returns per entry: 'OK', 'LOST' (somebody else has it; nothing was written), or why it failed.
local group, consumer, cache_ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local entries = named_entries(group, consumer, 4, 9)
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

drop_entries(group, owned)
local running = {} -- request id -> since when
for at, since in ipairs(redis.call('ZMSCORE', K_RUNNING, unpack(requests))) do
  running[requests[at]] = since
end
redis.call('ZREM', K_RUNNING, unpack(requests))
local leaders, spent = {}, {} -- fingerprint -> who leads, as lead_of has it; keys that go with their leaders
local has_followers = false
if #shared > 0 then
  has_followers = redis.call('EXISTS', unpack(followed)) > 0
  for at, leader in ipairs(redis.call('MGET', unpack(leads))) do leaders[shared[at]] = leader end
end

-- Those who waited for the entry's answer: six items each, as release_followers reads them.
local function followers_of(e)
  if not has_followers or not is_led_by(leaders[e.f], e.i) then return {} end
  return redis.call('LRANGE', e.followers, 0, -1)
end

local function complete(e)
  leave_backlog(e.b)
  local was_running = running[e.i]
  running[e.i] = nil
  if was_running then count(e.j, 'running', -1) end
  if e.outcome ~= 'succeeded' then
    settle(e.j, e.outcome, e.h, e.body, 'run', was_running)
    release_followers(e.f, e.i)
    return 'OK'
  end
  local flat = followers_of(e)
  settle(e.j, e.outcome, e.h, e.body, 'run', was_running, #flat > 0 and e.f)
  if e.f ~= '' and cache_ttl_s > 0 then redis.call('SET', k_cached(e.f), e.body, 'EX', cache_ttl_s) end
  if is_led_by(leaders[e.f], e.i) then
    spent[#spent + 1] = e.lead
    if has_followers then spent[#spent + 1] = e.followers end
  end
  for at = 1, #flat, 6 do
    leave_backlog(flat[at + 3])
    settle(flat[at + 1], e.outcome, flat[at + 4], e.body, 'follower', false, e.f)
  end
  return 'OK'
end

local verdicts = verdicts_on(entries, complete)
if #spent > 0 then redis.call('DEL', unpack(spent)) end
write_counts()
return verdicts
