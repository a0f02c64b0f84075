-- Records a document that never entered the queue (a bad line, too large) as a failed result, once.
-- ARGV: job id, custom id, header, body
-- Returns 'OK', 'SEEN', 'CANCELLED' or 'CLOSED' as submit.lua does.
local job = ARGV[1]
local known = redis.call('HMGET', k_job(job), 'created_at', 'cancelled_at', 'finished_at')
if not known[1] then return 'CLOSED' end
if redis.call('SISMEMBER', k_ids(job), ARGV[2]) == 1 then return 'SEEN' end
if known[2] then return 'CANCELLED' end
if known[3] then return 'CLOSED' end
redis.call('SADD', k_ids(job), ARGV[2])
count(job, 'submitted', 1)
settle(job, 'failed', ARGV[3], ARGV[4], 'rejected', true)
write_counts()
return 'OK'
