-- Shared by every script; loaded in front of it as one chunk.
--
-- KEYS[1] is the shard's prefix, `{dm:<namespace>:<shard>}`: not a key itself, it only routes the call
-- to the shard's slot. All other names are built from it here, as docmill/keys.py builds them.
--
--   <p>:job:<id>          hash     submitted succeeded failed cancelled expired running (counters)
--                                  sealed (1: no more documents come), cancelled_at, created_at,
--                                  finished_at, result_ttl_s. Expires result_ttl_s after the job ended.
--   <p>:job:<id>:ids      set      custom ids accepted; expires with the job
--   <p>:job:<id>:specs    hash     digest -> spec bytes; expires with the job
--   <p>:job:<id>:results  stream   h (header) b (body) d (how: run|follower|cached|rejected);
--                                  expires with the job
--   <p>:backlog           hash     docs, bytes in flight; max_docs, max_bytes (absent: defaults below)
--   <p>:running           zset     request id -> start, UNIX seconds; only while in an engine
--   <p>:intake:<tier>     stream   i (request id) j (job id) h (header) d (document) b (bytes) n (deliveries)
--   <p>:ready:<v>:<t>:<k> stream   i j h b n as above, p (prepared), f (fingerprint or '')
--   <p>:dead              stream   all fields of the entry, and stream, consumer, reason
--   <p>:lead:<fp>         string   request id of the leader; deleted with the leader's end
--   <p>:followers:<fp>    list     flat: request id, job id, tier, bytes, header, document; deleted with the
--                                  leader's end
--   <p>:result:<fp>       string   body bytes; expires by the writer's time
local P = KEYS[1]
local DEFAULT_MAX_DOCS = 1000000
local DEFAULT_MAX_BYTES = 4 * 1024 * 1024 * 1024

local function k_job(job) return P .. ':job:' .. job end
local function k_ids(job) return P .. ':job:' .. job .. ':ids' end
local function k_specs(job) return P .. ':job:' .. job .. ':specs' end
local function k_results(job) return P .. ':job:' .. job .. ':results' end
local function k_intake(tier) return P .. ':intake:' .. tier end
local function k_lead(fp) return P .. ':lead:' .. fp end
local function k_followers(fp) return P .. ':followers:' .. fp end
local function k_cached(fp) return P .. ':result:' .. fp end
local K_BACKLOG = P .. ':backlog'
local K_RUNNING = P .. ':running'
local K_DEAD = P .. ':dead'

local function now_s()
  local t = redis.call('TIME')
  return t[1] + t[2] / 1e6
end

-- Whether `consumer` still holds `entry`, which is what every worker's write is fenced by.
local function owns(stream, group, consumer, entry)
  local ok, rows = pcall(redis.call, 'XPENDING', stream, group, entry, entry, 1)
  return ok and rows[1] ~= nil and rows[1][2] == consumer
end

local function drop_entry(stream, group, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

-- The entry's fields as a table, or nil when it is gone.
local function fields_of(stream, entry)
  local rows = redis.call('XRANGE', stream, entry, entry)
  if not rows[1] then return nil end
  local flat, fields = rows[1][2], {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

-- Whether the fields that every script relies on are there: anybody may have added anything.
local function is_whole(e)
  return e.i and e.j and e.h and tonumber(e.b) and tonumber(e.n) and true or false
end

local function leave_backlog(bytes)
  redis.call('HINCRBY', K_BACKLOG, 'docs', -1)
  -- not unary minus: -0 reaches Redis 7.0 as '-0', which it does not take for an integer
  redis.call('HINCRBY', K_BACKLOG, 'bytes', 0 - tonumber(bytes))
end

-- Takes the request out of the running set; true when it was in it.
local function stop_running(job, request)
  if redis.call('ZREM', K_RUNNING, request) == 0 then return false end
  -- counting in a job that is gone would bring its key back
  if redis.call('EXISTS', k_job(job)) == 0 then return false end
  redis.call('HINCRBY', k_job(job), 'running', -1)
  return true
end

local function counters(job)
  local c = redis.call('HMGET', k_job(job), 'submitted', 'succeeded', 'failed', 'cancelled',
    'expired', 'running', 'sealed', 'cancelled_at', 'result_ttl_s', 'finished_at')
  local n = function(at) return tonumber(c[at] or 0) or 0 end
  return {
    submitted = n(1), done = n(2) + n(3) + n(4) + n(5), running = n(6), sealed = n(7) == 1,
    is_cancelled = c[8] and true or false, result_ttl_s = n(9), finished_at = c[10],
  }
end

local function is_cancelled(job)
  return redis.call('HEXISTS', k_job(job), 'cancelled_at') == 1
end

-- Whether the job still takes answers for documents that have not been started.
local function is_wanted(job)
  local known = redis.call('HMGET', k_job(job), 'created_at', 'cancelled_at')
  return known[1] and not known[2]
end

-- Starts the clock on the job's keys once nothing more can come.
local function finish_if_done(job)
  local c = counters(job)
  if not c.sealed or c.done < c.submitted or c.finished_at then return end
  redis.call('HSET', k_job(job), 'finished_at', now_s())
  for _, key in ipairs({k_job(job), k_ids(job), k_specs(job), k_results(job)}) do
    redis.call('EXPIRE', key, c.result_ttl_s)
  end
end

-- Writes one document's result and counts it. A document that waited while its job was cancelled was
-- counted then, so it gets no result of its own.
local function settle(job, outcome, header, body, how, was_running)
  if redis.call('EXISTS', k_job(job)) == 0 then return end
  if is_cancelled(job) and not was_running then return end
  redis.call('XADD', k_results(job), '*', 'h', header, 'b', body, 'd', how)
  redis.call('HINCRBY', k_job(job), outcome, 1)
  finish_if_done(job)
end

-- Sends those who waited for a leader without an answer back to intake, each to run or lead anew.
local function release_followers(fp, request)
  if fp == '' or redis.call('GET', k_lead(fp)) ~= request then return end
  local flat = redis.call('LRANGE', k_followers(fp), 0, -1)
  redis.call('DEL', k_lead(fp), k_followers(fp))
  for at = 1, #flat, 6 do
    redis.call('XADD', k_intake(flat[at + 2]), '*', 'i', flat[at], 'j', flat[at + 1],
      'h', flat[at + 4], 'd', flat[at + 5], 'b', flat[at + 3], 'n', 1)
  end
end

-- Lets go of a taken-out entry whose job was cancelled or is gone. What waited was counted at the
-- cancellation; what ran is counted now.
local function drop_unwanted(e)
  leave_backlog(e.b)
  if stop_running(e.j, e.i) then
    redis.call('HINCRBY', k_job(e.j), 'cancelled', 1)
    finish_if_done(e.j)
  end
  release_followers(e.f or '', e.i)
end

-- Parks a taken-out entry in the dead letters and fails its document, as far as the fields tell whose
-- it is.
local function bury(stream, consumer, e, reason, body)
  local flat = {'stream', stream, 'consumer', consumer, 'reason', reason}
  for name, value in pairs(e) do flat[#flat + 1] = name; flat[#flat + 1] = value end
  redis.call('XADD', K_DEAD, 'MAXLEN', '~', 100000, '*', unpack(flat))
  if not is_whole(e) then return end
  leave_backlog(e.b)
  settle(e.j, 'failed', e.h, body, 'run', stop_running(e.j, e.i))
  release_followers(e.f or '', e.i)
end

-- Gives the leader's body to those who waited for it.
local function answer_followers(fp, request, outcome, body)
  if fp == '' or redis.call('GET', k_lead(fp)) ~= request then return end
  local flat = redis.call('LRANGE', k_followers(fp), 0, -1)
  redis.call('DEL', k_lead(fp), k_followers(fp))
  for at = 1, #flat, 6 do
    leave_backlog(flat[at + 3])
    settle(flat[at + 1], outcome, flat[at + 4], body, 'follower', false)
  end
end
