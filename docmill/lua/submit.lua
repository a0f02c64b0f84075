-- Accepts one document into a job, once per custom id, however often it is sent.
-- ARGV: job id, custom id, request id, tier, header, document, digest of its spec, spec ('': the job
--       has it already)
-- Returns 'OK', 'SEEN' (this custom id was accepted before), 'FULL' (nothing was written; try later),
-- 'CANCELLED', or 'CLOSED' (the job was never opened, or is gone).
local job, custom_id, request, tier = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local header, document = ARGV[5], ARGV[6]
if redis.call('EXISTS', k_job(job)) == 0 then return 'CLOSED' end
-- before any refusal: the sender leaves the spec out from now on
if ARGV[8] ~= '' then redis.call('HSETNX', k_specs(job), ARGV[7], ARGV[8]) end
if redis.call('SISMEMBER', k_ids(job), custom_id) == 1 then return 'SEEN' end
if is_cancelled(job) then return 'CANCELLED' end
local b = redis.call('HMGET', K_BACKLOG, 'docs', 'bytes', 'max_docs', 'max_bytes')
local docs, bytes = tonumber(b[1] or 0), tonumber(b[2] or 0)
local max_docs = tonumber(b[3] or DEFAULT_MAX_DOCS)
local max_bytes = tonumber(b[4] or DEFAULT_MAX_BYTES)
-- an empty backlog takes any one document, so that a large one cannot wait for ever
if docs >= max_docs or (docs > 0 and bytes + #document > max_bytes) then return 'FULL' end
redis.call('SADD', k_ids(job), custom_id)
redis.call('HINCRBY', k_job(job), 'submitted', 1)
redis.call('HINCRBY', K_BACKLOG, 'docs', 1)
redis.call('HINCRBY', K_BACKLOG, 'bytes', #document)
redis.call('XADD', k_intake(tier), '*', 'i', request, 'j', job, 'h', header, 'd', document,
  'b', #document, 'n', 1)
return 'OK'
