-- Shared by every script; loaded in front of it as one chunk.
--
-- KEYS[1] is the shard's prefix, `{dm:<namespace>:<shard>}`: not a key itself, it only routes the call
-- to the shard's slot. All other names are built from it here, as docmill/keys.py builds them.
--
--   <p>:job:<id>          hash     submitted succeeded failed cancelled expired running (counters)
--                                  sealed (1: no more documents come), cancelled_at, paused_at,
--                                  cancels (1: some ids were cancelled singly), created_at, finished_at,
--                                  result_ttl_s, left (of a cancelled job: documents whose entries lie
--                                  somewhere still). Expires result_ttl_s after the job ended and left
--                                  nothing, and with it:
--   <p>:job:<id>:ids        set    custom ids accepted
--   <p>:job:<id>:specs      hash   digest -> spec bytes
--   <p>:job:<id>:results    stream h (header) b (body) d (how: run|follower|cached|rejected); or, b being
--                                  empty, s (fingerprint: the body lies in bodies)
--   <p>:job:<id>:bodies     hash   fingerprint -> body bytes that several results share
--   <p>:job:<id>:cancelled  set    custom ids cancelled singly
--   <p>:job:<id>:history    hash   request id -> its earlier dead letters, one line each
--   <p>:job:<id>:parked     stream ready entries that wait while the job is paused, and stream; goes when
--                                  it is resumed or cancelled
--   <p>:job:<id>:splits     hash   custom id -> job of its parts, while they are answered
--   <p>:job:<id>~<request>  hash   a job made of the parts of one document, as above, and parent (job id),
--                                  consumer, trace (of the last part that was given up); deleted with its end
--   <p>:job:<...>:whole     hash   the fields of that document's entry, and stream
--   <p>:parked            set      ids of the jobs that have parked entries
--   <p>:open              zset     job id -> when its producer last did something; only unsealed jobs
--   <p>:backlog           hash     docs, bytes in flight; max_docs, max_bytes (absent: defaults below)
--   <p>:running           zset     request id -> start, UNIX seconds; only while in an engine
--   <p>:intake:<tier>     stream   i (request id) j (job id) h (header) d (document) b (bytes) n (deliveries);
--                                  once its parts are answered also a (their bodies, each after its length
--                                  as four bytes, big-endian) and l (rounds of combining so far)
--   <p>:ready:<v>:<t>:<k> stream   i j h b n as above, p (prepared), f (fingerprint or '')
--   <p>:later             zset     request id -> due, UNIX seconds; only while it waits for a retry
--   <p>:later:<request>   hash     the fields of that entry, and stream
--   <p>:dead              stream   all fields of the entry, and stream, consumer, reason (code), error
--                                  (message), trace, result (its entry in the job's results), history
--   <p>:reaper            string   '<token> <holder>', with expiry: the reaper at work
--   <p>:lead:<fp>         string   one line each: request id of the leader, the stream and the entry id where
--                                  it lies, how many leaders before it failed; deleted with the last leader's
--                                  end
--   <p>:followers:<fp>    list     flat: request id, job id, tier, bytes, header, document (or the prepared
--                                  record), prompt tokens, ready stream (of prepared ones, else ''); deleted
--                                  with the last leader's end
--   <p>:result:<fp>       string   body bytes; expires by the writer's time
--   <p>:answers           zset     fp -> last use, UNIX seconds, of the results above
--   <p>:answers:bytes     hash     fp -> bytes, of the same, Redis' own expense included
--   <p>:sharing           hash     figures: lookups, process, cached, followed, promoted, evicted (counts),
--                                  tokens_saved (prompts not computed), answer_bytes (of all answers kept)
local P = KEYS[1]
local DEFAULT_MAX_DOCS = 1000000
local DEFAULT_MAX_BYTES = 4 * 1024 * 1024 * 1024

local function k_job(job) return P .. ':job:' .. job end
local function k_ids(job) return P .. ':job:' .. job .. ':ids' end
local function k_specs(job) return P .. ':job:' .. job .. ':specs' end
local function k_results(job) return P .. ':job:' .. job .. ':results' end
local function k_bodies(job) return P .. ':job:' .. job .. ':bodies' end
local function k_cancelled(job) return P .. ':job:' .. job .. ':cancelled' end
local function k_history(job) return P .. ':job:' .. job .. ':history' end
local function k_parked(job) return P .. ':job:' .. job .. ':parked' end
local function k_splits(job) return P .. ':job:' .. job .. ':splits' end
local function k_whole(job) return P .. ':job:' .. job .. ':whole' end
local function k_later(request) return P .. ':later:' .. request end
local function k_intake(tier) return P .. ':intake:' .. tier end
local function k_lead(fp) return P .. ':lead:' .. fp end
local function k_followers(fp) return P .. ':followers:' .. fp end
local function k_cached(fp) return P .. ':result:' .. fp end
local K_BACKLOG = P .. ':backlog'
local K_RUNNING = P .. ':running'
local K_DEAD = P .. ':dead'
local K_LATER = P .. ':later'
local K_PARKED = P .. ':parked'
local K_OPEN = P .. ':open'
local K_REAPER = P .. ':reaper'
local K_ANSWERS = P .. ':answers'
local K_ANSWER_BYTES = P .. ':answers:bytes'
local K_SHARING = P .. ':sharing'
-- A shared body of so many bytes or more is stored once per job.
local SHARED_BYTES = 1024
local NOT_PAYLOAD = {
  stream = 1, consumer = 1, reason = 1, error = 1, trace = 1, result = 1, history = 1,
}

local function starts_with(text, start) return string.sub(text, 1, #start) == start end

local function now_s()
  local t = redis.call('TIME')
  return t[1] + t[2] / 1e6
end

-- Whether `consumer` still holds `entry`, which is what every worker's write is fenced by.
local function owns(stream, group, consumer, entry)
  local ok, rows = pcall(redis.call, 'XPENDING', stream, group, entry, entry, 1)
  return ok and rows[1] ~= nil and rows[1][2] == consumer
end

-- What `consumer` holds of these entries of a stream, as a set. One range shows them all where they are
-- in order and the consumer holds little else between them; what it does not show is asked for alone.
local function owned_of(stream, group, consumer, ids)
  local owned = {}
  local ok, rows = pcall(redis.call, 'XPENDING', stream, group, ids[1], ids[#ids], 2 * #ids, consumer)
  for _, row in ipairs(ok and rows or {}) do owned[row[1]] = true end
  for _, id in ipairs(ids) do owned[id] = owned[id] or owns(stream, group, consumer, id) end
  return owned
end

-- The entries that a call names: in ARGV, `width` values each from `first` on, which open with stream,
-- entry id and the fields i j b. `is_owned` is true once for each that `consumer` holds.
local function named_entries(group, consumer, first, width)
  local entries, num, ids, owned = {}, 0, {}, {}
  for at = first, #ARGV, width do
    local stream, id = ARGV[at], ARGV[at + 1]
    num = num + 1
    -- with room for what its script adds: a table that grows is built anew
    entries[num] = {
      at = at, stream = stream, id = id, i = ARGV[at + 2], j = ARGV[at + 3], b = ARGV[at + 4],
      is_owned = false, f = false, h = false, outcome = false, body = false, lead = false, followers = false,
    }
    local of_stream = ids[stream]
    if not of_stream then
      of_stream = {}
      ids[stream] = of_stream
    end
    of_stream[#of_stream + 1] = id
  end
  for stream, of_stream in pairs(ids) do
    owned[stream] = owned_of(stream, group, consumer, of_stream)
  end
  for _, e in ipairs(entries) do
    e.is_owned = owned[e.stream][e.id]
    owned[e.stream][e.id] = false
  end
  return entries
end

-- Acknowledges and deletes entries. At most some thousands: Lua's stack bounds `unpack`.
local function drop_entries(group, entries)
  local ids = {}
  for _, e in ipairs(entries) do
    ids[e.stream] = ids[e.stream] or {}
    table.insert(ids[e.stream], e.id)
  end
  for stream, of_stream in pairs(ids) do
    redis.call('XACK', stream, group, unpack(of_stream))
    redis.call('XDEL', stream, unpack(of_stream))
  end
end

-- A script's first write is refused when it needs memory and there is none; this one needs none, and
-- those after it are let through.
local function open_writes() redis.call('ZREM', K_RUNNING, '') end

-- The verdicts on a call's entries: what `work` says of each that is owned, or why it failed. One
-- entry's failure must not keep the others from their verdicts.
local function verdicts_on(entries, work)
  local verdicts = {}
  for at, e in ipairs(entries) do
    local said = 'LOST'
    if e.is_owned then said = select(2, pcall(work, e)) end
    verdicts[at] = type(said) == 'table' and said.err or tostring(said)
  end
  return verdicts
end

local function table_of(flat)
  local fields = {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

local function flat_of(fields)
  local flat = {}
  for name, value in pairs(fields) do flat[#flat + 1] = name; flat[#flat + 1] = value end
  return flat
end

-- The entry's fields as a table, or nil when it is gone.
local function fields_of(stream, entry)
  local rows = redis.call('XRANGE', stream, entry, entry)
  return rows[1] and table_of(rows[1][2]) or nil
end

-- Whether a field is a number that can be counted: Lua also reads '1.5', 'nan' and 400 digits as numbers.
local function is_count(value) return value and #value < 16 and string.match(value, '^%d+$') end

-- Whether the fields that every script relies on are there: anybody may have added anything.
local function is_whole(e)
  return e.i and e.j and e.h and is_count(e.b) and is_count(e.n) and true or false
end

-- What a call adds to the backlog, to its jobs' counters and to the figures: summed up, and written by
-- `write_counts`.
local left_docs, left_bytes, jobs, figures = 0, 0, {}, {}

-- What is known of a job, and what this call adds to its counters.
local function job_of(id)
  if not jobs[id] then
    -- an id that somebody made up may name a key of another type: no job
    local is_read, known = pcall(redis.call, 'HMGET', k_job(id), 'created_at', 'cancelled_at', 'paused_at',
      'cancels')
    if not is_read then known = {} end
    jobs[id] = {
      exists = known[1], is_cancelled = known[2], is_paused = known[3], has_cancels = known[4], added = {},
      results = k_results(id),
    }
  end
  return jobs[id]
end

-- Whether the job still takes answers for documents that have not been started.
local function is_wanted(id)
  local job = job_of(id)
  return job.exists and not job.is_cancelled
end

-- Whether the document was cancelled singly. Only then a script looks into a record.
local function is_cancelled_singly(id, header)
  if not job_of(id).has_cancels then return false end
  local is_read, fields = pcall(cmsgpack.unpack, header)
  local custom_id = is_read and type(fields) == 'table' and fields.custom_id
  return custom_id and redis.call('SISMEMBER', k_cancelled(id), custom_id) == 1 or false
end

-- Whether an entry that has not been started still is to be.
local function is_entry_wanted(e) return is_wanted(e.j) and not is_cancelled_singly(e.j, e.h) end

local function count(id, name, by)
  local job = job_of(id)
  -- counting in a job that is gone would bring its key back
  if job.exists then job.added[name] = (job.added[name] or 0) + by end
end

local function note(figure, by) figures[figure] = (figures[figure] or 0) + by end

local function leave_backlog(bytes) left_docs, left_bytes = left_docs + 1, left_bytes + bytes end
local function enter_backlog(bytes) left_docs, left_bytes = left_docs - 1, left_bytes - bytes end

-- Takes the request out of the running set; true when it was in it and its job is still there.
local function stop_running(job, request)
  if redis.call('ZREM', K_RUNNING, request) == 0 then return false end
  count(job, 'running', -1)
  return job_of(job).exists and true
end

local function counters(job)
  local c = redis.call('HMGET', k_job(job), 'submitted', 'succeeded', 'failed', 'cancelled',
    'expired', 'running', 'sealed', 'cancelled_at', 'result_ttl_s', 'finished_at', 'left', 'parent')
  local n = function(at) return tonumber(c[at] or 0) or 0 end
  return {
    submitted = n(1), done = n(2) + n(3) + n(4) + n(5), running = n(6), sealed = n(7) == 1,
    is_cancelled = c[8] and true or false, result_ttl_s = n(9), finished_at = c[10], left = n(11),
    parent = c[12],
  }
end

local function is_cancelled(job)
  return redis.call('HEXISTS', k_job(job), 'cancelled_at') == 1
end

-- The keys that end with their job.
local function keys_of_job(job)
  return {
    k_job(job), k_ids(job), k_specs(job), k_results(job), k_bodies(job), k_cancelled(job), k_history(job),
    k_splits(job), k_whole(job),
  }
end

local ended_parts = {} -- jobs of parts that ended in this call; `write_counts` takes them together

-- Ends the job once nothing more can come, and starts the clock on its keys. They stay while entries of a
-- cancelled job lie somewhere: taken for another job's of the same id, those would be answered.
local function finish_if_done(job)
  local c = counters(job)
  if not c.sealed or c.done < c.submitted then return end
  if not c.finished_at then
    redis.call('HSET', k_job(job), 'finished_at', now_s())
    if c.parent then ended_parts[#ended_parts + 1] = job end
  end
  if c.left > 0 or redis.call('TTL', k_job(job)) >= 0 then return end
  if c.parent and c.finished_at then -- its answers were taken together then
    redis.call('DEL', unpack(keys_of_job(job)))
    return
  end
  for _, key in ipairs(keys_of_job(job)) do redis.call('EXPIRE', key, c.result_ttl_s) end
end

-- Lets a job that may have ended take results again.
local function reopen(job)
  redis.call('HDEL', k_job(job), 'finished_at')
  for _, key in ipairs(keys_of_job(job)) do redis.call('PERSIST', key) end
end

-- Writes one document's result and counts it; returns the result's entry id. A document that waited
-- while its job was cancelled was counted then, so it gets no result of its own; neither does one that
-- was cancelled singly. `fp`: the fingerprint, when several results of the job may share this body.
local function settle(id, outcome, header, body, how, was_running, fp)
  local job = job_of(id)
  if not job.exists then return nil end
  if job.is_cancelled and not was_running then
    count(id, 'left', 0 - 1)
    return nil
  end
  if not was_running and is_cancelled_singly(id, header) then outcome = 'cancelled' end
  count(id, outcome, 1)
  if outcome == 'cancelled' then return nil end
  if not fp or #body < SHARED_BYTES then
    return redis.call('XADD', job.results, '*', 'h', header, 'b', body, 'd', how)
  end
  redis.call('HSETNX', k_bodies(id), fp, body)
  return redis.call('XADD', job.results, '*', 'h', header, 'b', '', 'd', how, 's', fp)
end

local take_together -- below: it ends documents in turn

-- Every script that counts ends with this. 0 - x: unary minus makes -0, which reaches Redis 7.0 as '-0',
-- no integer to it. pcall: a counter that somebody spoiled must not cost the others theirs.
local function write_counts()
  if left_docs ~= 0 then
    pcall(redis.call, 'HINCRBY', K_BACKLOG, 'docs', 0 - left_docs)
    pcall(redis.call, 'HINCRBY', K_BACKLOG, 'bytes', 0 - left_bytes)
  end
  for figure, by in pairs(figures) do pcall(redis.call, 'HINCRBY', K_SHARING, figure, by) end
  local counted = jobs
  left_docs, left_bytes, jobs, figures = 0, 0, {}, {}
  for id, job in pairs(counted) do
    for name, by in pairs(job.added) do pcall(redis.call, 'HINCRBY', k_job(id), name, by) end
    if next(job.added) then finish_if_done(id) end
  end
  if #ended_parts == 0 then return end
  local ended = ended_parts
  ended_parts = {}
  for _, job in ipairs(ended) do pcall(take_together, job) end
  write_counts()
end
