-- Forgets stored answers that nobody asked for during their lifetime or that have expired, and the least
-- recently used of those that are too many.
-- ARGV: lifetime in seconds, bytes that all may take, how many to look at, and to forget, at most
-- Returns how many were forgotten.
local ttl_s, max_bytes, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
open_writes()
local bytes = tonumber(redis.call('HGET', K_SHARING, 'answer_bytes') or 0) or 0
local oldest_kept, old = now_s() - ttl_s, {}
local rows = redis.call('ZRANGE', K_ANSWERS, 0, most - 1, 'WITHSCORES')
for at = 1, #rows, 2 do
  local fp = rows[at]
  -- whoever wrote it may have given it less time than this caller would
  if tonumber(rows[at + 1]) < oldest_kept or redis.call('EXISTS', k_cached(fp)) == 0 then
    old[#old + 1] = fp
  end
end
if #old > 0 then bytes = bytes - forget_answers(old) end
local num_evicted = evict_answers(bytes, max_bytes, most)
write_counts()
return #old + num_evicted
