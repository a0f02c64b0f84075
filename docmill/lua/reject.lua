-- Records a document that never entered the queue (a bad line, too large) as a failed result, once.
-- ARGV: job id, custom id, header, body
-- Returns 'OK', 'SEEN' or 'CLOSED' as submit.lua does.
local job = ARGV[1]
if redis.call('EXISTS', k_job(job)) == 0 then return 'CLOSED' end
if redis.call('SADD', k_ids(job), ARGV[2]) == 0 then return 'SEEN' end
count(job, 'submitted', 1)
settle(job, 'failed', ARGV[3], ARGV[4], 'rejected', true)
write_counts()
return 'OK'
