-- Replaces an intake entry by the parts of its document, each a document of a new job. When they all have
-- answers the entry comes back with them (see _parts.lua); until then its document waits, as any other.
-- ARGV: stream, group, consumer, entry id, name of the new job, the document's header to go on with, digest
--       and bytes of the spec that parts are asked, then per part: request id, header, text
-- Returns 'SPLIT', 'DROPPED' (it was cancelled, or its job is gone), or 'LOST' (somebody else has it;
-- nothing was written).
local stream, group, consumer, entry, parts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local e = owns(stream, group, consumer, entry) and fields_of(stream, entry)
if not e then return 'LOST' end
open_writes()
local function drop() drop_entries(group, {{stream = stream, id = entry}}) end
if not is_entry_wanted(e) then
  drop_unwanted(e, stream)
  drop()
  write_counts()
  return 'DROPPED'
end
e.h = ARGV[6]
local custom_id = cmsgpack.unpack(e.h).custom_id
local num_parts = (#ARGV - 8) / 3
local ttl_s = redis.call('HGET', k_job(e.j), 'result_ttl_s')
redis.call('HSET', k_splits(e.j), custom_id, parts) -- first: it may fail, and nothing is undone then
redis.call('DEL', unpack(keys_of_job(parts)))
redis.call('HSET', k_job(parts), 'created_at', now_s(), 'sealed', 1, 'submitted', num_parts,
  'result_ttl_s', ttl_s or 0, 'parent', e.j)
if job_of(e.j).is_paused then redis.call('HSET', k_job(parts), 'paused_at', job_of(e.j).is_paused) end
redis.call('HSET', k_specs(parts), ARGV[7], ARGV[8])
for at = 9, #ARGV, 3 do
  local size = #ARGV[at + 2]
  redis.call('XADD', stream, '*', 'i', ARGV[at], 'j', parts, 'h', ARGV[at + 1], 'b', size, 'n', 1,
    'd', ARGV[at + 2])
  enter_backlog(size)
end
e.n, e.stream = 1, stream
redis.call('HSET', k_whole(parts), unpack(flat_of(e)))
drop() -- last: nothing is undone when a script fails
write_counts()
return 'SPLIT'
