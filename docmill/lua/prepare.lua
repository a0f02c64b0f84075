-- Ends one intake entry: the document becomes ready, follows a leader, is answered from the result
-- cache, or is refused. One atomic step, fenced by ownership of the entry.
-- ARGV: intake stream, group, consumer, entry id, verdict, ...
--   verdict 'ready':  ready stream, prepared bytes, fingerprint ('' = never shared)
--   verdict 'settle': outcome, body bytes
-- Returns 'READY', 'FOLLOWS', 'CACHED', 'SETTLED', 'DROPPED' (its job was cancelled or is gone), or
-- 'LOST' (the entry is somebody else's; nothing was written).
local stream, group, consumer, entry, verdict = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not owns(stream, group, consumer, entry) then return 'LOST' end
local e = fields_of(stream, entry)
drop_entry(stream, group, entry)
if not e then return 'LOST' end
if redis.call('EXISTS', k_job(e.j)) == 0 or is_cancelled(e.j) then
  leave_backlog(e.b)
  return 'DROPPED'
end
if verdict == 'settle' then
  leave_backlog(e.b)
  settle(e.j, ARGV[6], e.h, ARGV[7], 'rejected', false)
  return 'SETTLED'
end
local fp = ARGV[8]
if fp ~= '' then
  local cached = redis.call('GET', k_cached(fp))
  if cached then
    leave_backlog(e.b)
    settle(e.j, 'succeeded', e.h, cached, 'cached', false)
    return 'CACHED'
  end
  local leader = redis.call('GET', k_lead(fp))
  if leader and leader ~= e.i then
    local tier = string.match(stream, '([^:]+)$')
    redis.call('RPUSH', k_followers(fp), e.i, e.j, tier, e.b, e.h, e.d)
    return 'FOLLOWS'
  end
  redis.call('SET', k_lead(fp), e.i)
end
redis.call('XADD', ARGV[6], '*', 'i', e.i, 'j', e.j, 'h', e.h, 'b', e.b, 'n', 1, 'p', ARGV[7], 'f', fp)
return 'READY'
