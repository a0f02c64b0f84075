-- Ends ready entries with their results: result, result cache, followers, counters, acknowledgement in
-- one step, each only while this consumer still owns it.
-- ARGV: group, consumer, result cache lifetime in seconds, then per entry: ready stream, entry id, the
--       entry's fields i j b f h (passed because reading them here would copy the whole prompt into
--       Lua), outcome, body bytes
-- Returns per entry: 'OK', 'LOST' (somebody else has it; nothing was written), or why it failed.
local group, consumer, cache_ttl_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local docs, bytes, jobs = 0, 0, {}

-- What is known of a job, and what this call adds to its counters.
local function job_of(id)
  if not jobs[id] then
    local known = redis.call('HMGET', k_job(id), 'created_at', 'cancelled_at')
    jobs[id] = {exists = known[1], is_cancelled = known[2], added = {}}
  end
  return jobs[id]
end

local function count(job, name, by) job.added[name] = (job.added[name] or 0) + by end

local function record(e, outcome, body, was_running)
  local job = job_of(e.j)
  if not job.exists then return end
  if was_running then count(job, 'running', -1) end
  -- what waited when its job was cancelled was counted then
  if job.is_cancelled and not was_running then return end
  redis.call('XADD', k_results(e.j), '*', 'h', e.h, 'b', body, 'd', 'run')
  count(job, outcome, 1)
end

local function complete(stream, entry, e, outcome, body)
  if not owns(stream, group, consumer, entry) then return 'LOST' end
  drop_entry(stream, group, entry)
  docs, bytes = docs + 1, bytes + e.b
  record(e, outcome, body, redis.call('ZREM', K_RUNNING, e.i) == 1)
  if outcome ~= 'succeeded' then
    release_followers(e.f, e.i)
    return 'OK'
  end
  if e.f ~= '' and cache_ttl_s > 0 then redis.call('SET', k_cached(e.f), body, 'EX', cache_ttl_s) end
  answer_followers(e.f, e.i, outcome, body)
  return 'OK'
end

local verdicts = {}
for at = 4, #ARGV, 9 do
  local e = {i = ARGV[at + 2], j = ARGV[at + 3], b = ARGV[at + 4], f = ARGV[at + 5], h = ARGV[at + 6]}
  -- one entry's failure must not keep the others from being counted
  local _, verdict = pcall(complete, ARGV[at], ARGV[at + 1], e, ARGV[at + 7], ARGV[at + 8])
  verdicts[#verdicts + 1] = type(verdict) == 'table' and verdict.err or tostring(verdict)
end
redis.call('HINCRBY', K_BACKLOG, 'docs', 0 - docs) -- never -0: see leave_backlog
redis.call('HINCRBY', K_BACKLOG, 'bytes', 0 - bytes)
for id, job in pairs(jobs) do
  for name, by in pairs(job.added) do redis.call('HINCRBY', k_job(id), name, by) end
  if job.exists then finish_if_done(id) end
end
return verdicts
