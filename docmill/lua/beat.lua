-- A consumer's sign of life. A script, because a plain write is refused while memory is full, and the
-- living must not be taken for dead then.
-- ARGV: consumer, lifetime in milliseconds, what it is and does (JSON)
open_writes()
redis.call('SET', P .. ':heartbeat:' .. ARGV[1], 1, 'PX', ARGV[2])
redis.call('HSET', P .. ':consumers', ARGV[1], ARGV[3])
return 'OK'
