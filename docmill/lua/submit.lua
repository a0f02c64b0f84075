-- Accepts documents into a job, each once per custom id, however often it is sent.
-- ARGV: job id, tier, then per document: custom id, request id, header, document, digest of its spec,
--       spec ('': the job has it already)
-- Returns per document: 'OK', 'SEEN' (this custom id was accepted before), 'FULL' (nothing was written;
-- try later), 'CANCELLED', 'CLOSED' (the job was never opened, has ended, or is gone), or why it failed.
local job, tier = ARGV[1], ARGV[2]
local known = redis.call('HMGET', k_job(job), 'created_at', 'cancelled_at', 'finished_at')
local b = redis.call('HMGET', K_BACKLOG, 'docs', 'bytes', 'max_docs', 'max_bytes')
local docs, bytes = tonumber(b[1] or 0), tonumber(b[2] or 0)
local max_docs = tonumber(b[3] or DEFAULT_MAX_DOCS)
local max_bytes = tonumber(b[4] or DEFAULT_MAX_BYTES)
local custom_ids, seen, accepted, new_bytes = {}, {}, {}, 0
for at = 3, #ARGV, 6 do custom_ids[#custom_ids + 1] = ARGV[at] end
for at, is_member in ipairs(redis.call('SMISMEMBER', k_ids(job), unpack(custom_ids))) do
  seen[custom_ids[at]] = is_member == 1
end

local function accept(custom_id, request, header, document, digest, spec)
  -- before any other refusal: the sender leaves the spec out from now on
  if spec ~= '' and not known[3] then redis.call('HSETNX', k_specs(job), digest, spec) end
  if seen[custom_id] then return 'SEEN' end
  if known[2] then return 'CANCELLED' end
  if known[3] then return 'CLOSED' end
  local size = #document
  -- an empty backlog takes any one document, so that a large one cannot wait for ever
  local depth, held = docs + #accepted, bytes + new_bytes
  if depth >= max_docs or (depth > 0 and held + size > max_bytes) then return 'FULL' end
  -- the document last: each field after it would move it once more
  redis.call('XADD', k_intake(tier), '*', 'i', request, 'j', job, 'h', header, 'b', size, 'n', 1,
    'd', document)
  seen[custom_id] = true
  accepted[#accepted + 1], new_bytes = custom_id, new_bytes + size
  return 'OK'
end

local verdicts = {}
for at = 3, #ARGV, 6 do
  local verdict = 'CLOSED'
  if known[1] then
    -- one document's failure must not keep the others from being counted
    local _, said = pcall(accept, unpack(ARGV, at, at + 5))
    verdict = type(said) == 'table' and said.err or tostring(said)
  end
  verdicts[#verdicts + 1] = verdict
end
if #accepted > 0 then
  redis.call('SADD', k_ids(job), unpack(accepted))
  redis.call('HINCRBY', k_job(job), 'submitted', #accepted)
  redis.call('HINCRBY', K_BACKLOG, 'docs', #accepted)
  redis.call('HINCRBY', K_BACKLOG, 'bytes', new_bytes)
  redis.call('ZADD', K_OPEN, 'XX', now_s(), job)
end
return verdicts
