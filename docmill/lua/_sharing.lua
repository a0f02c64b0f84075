-- Who computes an answer and who waits for it; and what becomes of those when an entry ends without one.
local function lead_of(request, stream, entry, num_failed)
  return request .. '\n' .. stream .. '\n' .. entry .. '\n' .. (num_failed or '0')
end

local NEWLINE = 10

local function is_led_by(lead, request)
  return lead and string.byte(lead, #request + 1) == NEWLINE and starts_with(lead, request)
end

local function failures_of(lead) return tonumber(string.match(lead, '\n(%d+)$')) or 0 end

-- A marker is believed only while its leader's entry lies where it says, or waits for another try: who
-- deletes a stream by hand, or writes a marker, must not have copies wait for ever.
local function is_lead_alive(lead)
  local request, stream, entry = string.match(lead, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n%d+$')
  if not request then return false end
  local is_read, rows = pcall(redis.call, 'XRANGE', stream, entry, entry)
  return is_read and rows[1] ~= nil or redis.call('EXISTS', k_later(request)) == 1
end

-- Puts a taken-out entry back into its stream; if it leads, its followers' marker goes with it.
local function send_back(stream, e)
  local entry = redis.call('XADD', stream, '*', unpack(flat_of(e)))
  local lead = (e.f or '') ~= '' and redis.call('GET', k_lead(e.f))
  if is_led_by(lead, e.i) then
    redis.call('SET', k_lead(e.f), lead_of(e.i, stream, entry, failures_of(lead)))
  end
end

local function follow(fp, e, tier, payload, num_tokens, ready)
  redis.call('RPUSH', k_followers(fp), e.i, e.j, tier, e.b, e.h, payload, num_tokens, ready)
  note('followed', 1)
end

local FOLLOWER_ITEMS = 8

-- The next in line, as the entry it would be, and its stream; taken out of the line, nil at its end.
local function next_follower(fp)
  local flat = redis.call('LPOP', k_followers(fp), FOLLOWER_ITEMS)
  if not flat or #flat < FOLLOWER_ITEMS then return nil end
  local request, job, tier, bytes, header, payload, _, ready = unpack(flat)
  local e = {i = request, j = job, h = header, b = bytes, n = '1'} -- a string, as in every entry
  if ready == '' then
    e.d = payload
    return e, k_intake(tier)
  end
  e.p, e.f = payload, fp
  return e, ready
end

-- A follower as an entry with the leader's prompt, and the ready stream of its own tier.
local function with_prompt(e, stream, prompt, ready)
  local tier = e.d and string.match(stream, '([^:]+)$') or string.match(stream, '([^:]+):%d+$')
  local head, bucket = string.match(ready, '^(.*:)[^:]+(:%d+)$')
  return {i = e.i, j = e.j, h = e.h, b = e.b, n = 1, f = prompt.f, p = prompt.p}, head .. tier .. bucket
end

-- Has a follower lead.
local function promote(e, stream, prompt, ready, num_failed)
  local ready_one, target = with_prompt(e, stream, prompt, ready)
  local entry = redis.call('XADD', target, '*', unpack(flat_of(ready_one)))
  redis.call('SET', k_lead(prompt.f), lead_of(e.i, target, entry, num_failed))
  note('promoted', 1)
end

-- Puts a taken-out entry aside until its job goes on. `stream`: where it comes back to.
local function park(e, stream)
  e.stream = stream
  redis.call('XADD', k_parked(e.j), '*', unpack(flat_of(e)))
  redis.call('SADD', K_PARKED, e.j)
end

local pass_lead -- below: it drops followers that nobody wants any more

-- Lets go of a taken-out entry that was cancelled or whose job is gone. What waited when its job was
-- cancelled was counted then; everything else is counted now. `stream`: where it lay.
local function drop_unwanted(e, stream)
  leave_backlog(e.b)
  local is_uncounted = stop_running(e.j, e.i) or (is_wanted(e.j) and is_cancelled_singly(e.j, e.h))
  count(e.j, is_uncounted and 'cancelled' or 'left', is_uncounted and 1 or 0 - 1)
  pass_lead(e, stream)
end

-- An entry that leads ends without an answer: the next in line leads with the same prompt, and the others
-- go on waiting. `give_up`, if the leader failed: called with each of those who wait, and where it would
-- lie, once a second leader has failed as well: then it is the prompt's own fault, which all of them share.
-- The entry has its prompt with it (e.p), or lies in its stream still (e.id).
pass_lead = function(e, stream, give_up)
  local fp = e.f or ''
  local lead = fp ~= '' and redis.call('GET', k_lead(fp))
  if not is_led_by(lead, e.i) then return end
  redis.call('DEL', k_lead(fp))
  if redis.call('EXISTS', k_followers(fp)) == 0 then return end
  local prompt = {f = fp, p = e.p or (e.id and (fields_of(stream, e.id) or {}).p)}
  local num_failed = failures_of(lead) + (give_up and 1 or 0)
  local next_one, its_stream = next_follower(fp)
  while next_one do
    if not is_entry_wanted(next_one) then
      drop_unwanted(next_one, its_stream)
    elseif num_failed > 1 then
      give_up(next_one, its_stream)
    elseif prompt.p then
      return promote(next_one, its_stream, prompt, stream, num_failed)
    else
      redis.call('XADD', its_stream, '*', unpack(flat_of(next_one)))
    end
    next_one, its_stream = next_follower(fp)
  end
end

-- A leader was parked: the first of those who wait that is not paused leads in its stead, because nobody may
-- have to wait until somebody else's pause ends. Those before it are parked as well; who comes back first leads.
local function rest_lead(e, ready)
  local lead = (e.f or '') ~= '' and redis.call('GET', k_lead(e.f))
  if not is_led_by(lead, e.i) then return end
  redis.call('DEL', k_lead(e.f))
  local next_one, its_stream = next_follower(e.f)
  while next_one do
    if not job_of(next_one.j).is_paused then
      return promote(next_one, its_stream, e, ready, failures_of(lead))
    end
    park(with_prompt(next_one, its_stream, e, ready))
    next_one, its_stream = next_follower(e.f)
  end
end

-- Parks a taken-out entry in the dead letters and fails its document, as far as the fields tell whose
-- it is. A part of a document leaves no letter of its own: the whole will.
local function bury(stream, consumer, e, code, body, message, trace)
  local letter = {
    'stream', stream, 'consumer', consumer, 'reason', code, 'error', message, 'trace', trace,
  }
  local function add(name, value) letter[#letter + 1] = name; letter[#letter + 1] = value end
  local is_part = false
  if is_whole(e) then
    leave_backlog(e.b)
    local was_running = redis.call('ZSCORE', K_RUNNING, e.i) and job_of(e.j).exists
    local result = settle(e.j, 'failed', e.h, body, 'run', was_running)
    is_part = job_of(e.j).exists and redis.call('HEXISTS', k_job(e.j), 'parent') == 1
    add('result', result or '')
    add('history', job_of(e.j).exists and redis.call('HGET', k_history(e.j), e.i) or '')
  end
  for name, value in pairs(e) do
    -- Lua's stack bounds `unpack`: of what somebody made up, some thousand fields do
    if not NOT_PAYLOAD[name] and #letter < 2000 then add(name, value) end
  end
  if is_part then
    redis.call('HSET', k_job(e.j), 'consumer', consumer, 'trace', trace)
  else
    redis.call('XADD', K_DEAD, 'MAXLEN', '~', 100000, '*', unpack(letter))
  end
  if is_whole(e) then
    stop_running(e.j, e.i)
    pass_lead(e, stream, function(follower, its_stream)
      bury(its_stream, consumer, follower, code, body, message, trace)
    end)
  end
end
