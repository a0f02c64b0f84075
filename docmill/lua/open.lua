-- Opens a job, or comes back to one. Returns 'OK', or 'CANCELLED' when it takes no more documents.
-- ARGV: job id, result_ttl_s, meta (msgpack: what the caller named it), digest, spec, [digest, spec ...]
local K_JOBS, LISTED_JOBS = P .. ':jobs', 10000
local job = ARGV[1]
if is_cancelled(job) then return 'CANCELLED' end
if redis.call('HSETNX', k_job(job), 'created_at', now_s()) == 1 then
  redis.call('HSET', k_job(job), 'meta', ARGV[3])
  redis.call('ZADD', K_JOBS, now_s(), job)
  redis.call('ZREMRANGEBYRANK', K_JOBS, 0, -LISTED_JOBS - 1)
end
redis.call('HSET', k_job(job), 'result_ttl_s', ARGV[2], 'sealed', 0)
redis.call('ZADD', K_OPEN, now_s(), job)
reopen(job)
for at = 4, #ARGV, 2 do redis.call('HSETNX', k_specs(job), ARGV[at], ARGV[at + 1]) end
return 'OK'
