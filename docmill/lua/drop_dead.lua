-- Forgets dead letters; the failed results of their documents stay.
-- ARGV: ids.  Returns how many there were.
return redis.call('XDEL', K_DEAD, unpack(ARGV))
