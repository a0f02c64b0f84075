-- Ends intake entries: each document becomes ready, follows a leader, is answered from the result cache,
-- or is refused; each only while this consumer still owns its entry.
-- ARGV: group, consumer, then per entry: intake stream, entry id, the entry's fields i j b h (passed
--       because reading them here would copy the document into Lua), verdict and its three arguments:
--         'ready':  ready stream, prepared bytes, fingerprint ('' = never shared)
--         'settle': outcome, body bytes, ''
-- Returns per entry: 'READY', 'FOLLOWS', 'CACHED', 'SETTLED', 'DROPPED' (its job was cancelled or is
-- gone), 'LOST' (the entry is somebody else's; nothing was written), or why it failed.
local group, consumer = ARGV[1], ARGV[2]

-- The answer stored for the fingerprint, or whom to follow; neither: this request is to lead.
local function shared(e, fp)
  if fp == '' then return nil, nil end
  local cached = redis.call('GET', k_cached(fp))
  local leader = not cached and redis.call('GET', k_lead(fp))
  return cached, leader and leader ~= e.i
end

local function settle_now(e, outcome, body, how)
  leave_backlog(e.b)
  settle(e.j, outcome, e.h, body, how, false)
end

local function end_entry(stream, entry, e, verdict, first, second, fp)
  if not owns(stream, group, consumer, entry) then return 'LOST' end
  local cached, follows = shared(e, fp)
  local whole = follows and fields_of(stream, entry)
  local wanted = is_wanted(e.j)
  -- before any other write: a first write that needs memory would be refused when there is none
  drop_entry(stream, group, entry)
  if follows and not whole then return 'LOST' end
  if not wanted then
    leave_backlog(e.b)
    return 'DROPPED'
  elseif verdict == 'settle' then
    settle_now(e, first, second, 'rejected')
    return 'SETTLED'
  elseif cached then
    settle_now(e, 'succeeded', cached, 'cached')
    return 'CACHED'
  elseif follows then
    local tier = string.match(stream, '([^:]+)$')
    redis.call('RPUSH', k_followers(fp), e.i, e.j, tier, e.b, e.h, whole.d)
    return 'FOLLOWS'
  end
  if fp ~= '' then redis.call('SET', k_lead(fp), e.i) end
  redis.call('XADD', first, '*', 'i', e.i, 'j', e.j, 'h', e.h, 'b', e.b, 'n', 1, 'p', second, 'f', fp)
  return 'READY'
end

local verdicts = {}
for at = 3, #ARGV, 10 do
  local e = {i = ARGV[at + 2], j = ARGV[at + 3], b = ARGV[at + 4], h = ARGV[at + 5]}
  -- one entry's failure must not keep the others from being told
  local _, verdict = pcall(end_entry, ARGV[at], ARGV[at + 1], e, unpack(ARGV, at + 6, at + 9))
  verdicts[#verdicts + 1] = type(verdict) == 'table' and verdict.err or tostring(verdict)
end
return verdicts
