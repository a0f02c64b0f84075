-- Forgets stored answers that nobody asked for during their lifetime, and the least recently used of those
-- that are too many.
-- ARGV: lifetime in seconds, bytes that all may take, how many to forget at most
-- Returns how many were forgotten.
local ttl_s, max_bytes, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
open_writes()
local bytes = tonumber(redis.call('HGET', K_SHARING, 'answer_bytes') or 0) or 0
local old = redis.call('ZRANGE', K_ANSWERS, '-inf', now_s() - ttl_s, 'BYSCORE', 'LIMIT', 0, most)
if #old > 0 then bytes = bytes - forget_answers(old) end
local num_evicted = evict_answers(bytes, max_bytes, most)
write_counts()
return #old + num_evicted
