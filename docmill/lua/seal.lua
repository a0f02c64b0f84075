-- Declares that no more documents will come; the job ends when the last one is done.
-- ARGV: job id.  Returns 1, or 0 when there is no such job.
if redis.call('EXISTS', k_job(ARGV[1])) == 0 then return 0 end
open_writes()
redis.call('HSET', k_job(ARGV[1]), 'sealed', 1)
redis.call('ZREM', K_OPEN, ARGV[1])
finish_if_done(ARGV[1])
return 1
