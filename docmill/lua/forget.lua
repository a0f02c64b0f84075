-- Removes a consumer that is gone from a stream's group, only while nothing is pending for it: deleting
-- it earlier would lose its entries.
-- ARGV: stream, group, consumer, the consumer's heartbeat key
-- Returns 'OK', or 'KEPT' (it lives, or entries are pending for it).
local stream, group, consumer = ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', ARGV[4]) == 1 then return 'KEPT' end
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return 'KEPT' end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
redis.call('HDEL', P .. ':consumers', consumer)
return 'OK'
