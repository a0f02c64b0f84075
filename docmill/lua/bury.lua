-- Gives up an entry for good: a dead letter with all its fields, and a failed result where they tell
-- whose document it was.
-- ARGV: stream, group, consumer, entry id, code, body bytes for the failed result, message, digest of
--       the traceback or ''
-- Returns 'OK', or 'LOST' (somebody else has the entry; nothing was written).
local stream, group, consumer, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local e = owns(stream, group, consumer, entry) and fields_of(stream, entry)
if not e then return 'LOST' end
open_writes()
bury(stream, consumer, e, ARGV[5], ARGV[6], ARGV[7], ARGV[8])
-- last: nothing is undone when a script fails, and what failed to be buried must not be gone
drop_entries(group, {{stream = stream, id = entry}})
write_counts()
return 'OK'
