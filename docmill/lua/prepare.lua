-- Ends intake entries: each document becomes ready, follows a leader, is answered from the result cache,
-- or is refused; each only while this consumer still owns its entry.
-- ARGV: group, consumer, how many of the documents the worker knew already, then per entry: intake stream,
--       entry id, the entry's fields i j b (passed because reading them here would copy the document into
--       Lua), the header to go on with, verdict and its four arguments:
--         'ready':  ready stream, prepared bytes, fingerprint ('' = never shared), prompt tokens
--         'settle': outcome, body bytes, '', ''
-- Returns per entry: 'READY', 'FOLLOWS', 'CACHED', 'SETTLED', 'DROPPED' (it was cancelled, or its job
-- is gone), 'LOST' (the entry is somebody else's; nothing was written), or why it failed (nothing was
-- written, and the entry is still this consumer's).
local group, consumer = ARGV[1], ARGV[2]
local entries = named_entries(group, consumer, 4, 11)
local shared, names = {}, {}
for _, e in ipairs(entries) do
  e.h, e.verdict, e.first, e.second, e.f = unpack(ARGV, e.at + 5, e.at + 9)
  if e.is_owned and e.f ~= '' then
    shared[#shared + 1] = e.f
    names[#names + 1] = k_cached(e.f)
    names[#names + 1] = k_lead(e.f)
  end
end
local stored, leaders = {}, {} -- fingerprint -> the answer's bytes; -> who computes it, as lead_of has it
if #shared > 0 then
  local values = redis.call('MGET', unpack(names))
  for at, fp in ipairs(shared) do
    stored[fp], leaders[fp] = values[2 * at - 1], values[2 * at]
  end
  note('lookups', #shared)
  note('process', tonumber(ARGV[3]))
end

local found = {} -- fingerprint -> whether its leader is there

local function has_leader(e)
  local lead = leaders[e.f]
  if not lead or is_led_by(lead, e.i) then return false end
  if found[e.f] == nil then found[e.f] = is_lead_alive(lead) end
  return found[e.f]
end

local function wait_for_leader(e)
  local whole = fields_of(e.stream, e.id)
  if not whole then return 'LOST' end
  follow(e.f, e, string.match(e.stream, '([^:]+)$'), whole.d, ARGV[e.at + 10], '')
  return 'FOLLOWS'
end

local used = {} -- fingerprints whose stored answers were given

local led = {} -- flat: each new marker's key and value

local function make_ready(e)
  -- the prompt last: each field after it would move it once more
  local entry = redis.call('XADD', e.first, '*', 'i', e.i, 'j', e.j, 'h', e.h, 'b', e.b, 'n', '1',
    'f', e.f, 'p', e.second)
  -- those who waited for one that is gone wait for this one; nobody may have to until a pause ends
  if e.f ~= '' and not job_of(e.j).is_paused then
    leaders[e.f], found[e.f] = lead_of(e.i, e.first, entry), true
    led[#led + 1] = k_lead(e.f)
    led[#led + 1] = leaders[e.f]
  end
  return 'READY'
end

local ended = {}

-- At most one write of each entry can fail, and it comes before all counting.
local function end_entry(e)
  local said
  if not is_entry_wanted(e) then
    said = 'DROPPED'
    drop_unwanted(e, e.stream)
  elseif e.verdict == 'settle' then
    said = 'SETTLED'
    settle(e.j, e.first, e.h, e.second, 'rejected', false)
    leave_backlog(e.b)
  elseif stored[e.f] then
    said = 'CACHED'
    settle(e.j, 'succeeded', e.h, stored[e.f], 'cached', false, e.f)
    leave_backlog(e.b)
    used[#used + 1] = e.f
    note('tokens_saved', tonumber(ARGV[e.at + 10]))
  elseif has_leader(e) then
    said = wait_for_leader(e)
  else
    said = make_ready(e)
  end
  ended[#ended + 1] = e
  return said
end

open_writes()
local verdicts = verdicts_on(entries, end_entry)
drop_entries(group, ended)
if #led > 0 then redis.call('MSET', unpack(led)) end
if #used > 0 then
  pcall(touch_answers, used)
  note('cached', #used)
end
write_counts()
return verdicts
