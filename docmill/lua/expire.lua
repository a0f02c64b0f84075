-- Ends documents whose deadline passed while they waited where no worker may come soon: in intake or ready
-- streams, and parked. What a worker holds is the worker's own.
-- ARGV: stream, group, entry id to start after, how many entries to look at, body bytes of the results
-- Returns {how many ended, id of the last entry looked at ('' at the stream's end), how many were looked at}
local MAX_BYTES = 1024 * 1024
local stream, group, most, body = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[5]
open_writes()
local now = now_s()

local function is_late(header)
  -- most have no deadline: not worth unpacking
  if not header or not string.find(header, 'deadline_at', 1, true) then return false end
  local is_read, fields = pcall(cmsgpack.unpack, header)
  local deadline_at = is_read and type(fields) == 'table' and tonumber(fields.deadline_at)
  return deadline_at and deadline_at < now
end

local function is_held(entry)
  local ok, rows = pcall(redis.call, 'XPENDING', stream, group, entry, entry, 1)
  return ok and #rows > 0 -- parked entries have no group
end

local function finish(entry, e)
  redis.call('XDEL', stream, entry)
  if is_entry_wanted(e) then
    leave_backlog(e.b)
    settle(e.j, 'expired', e.h, body, 'rejected', false)
    pass_lead(e, e.stream or stream)
  else
    drop_unwanted(e, e.stream or stream)
  end
  if stream == k_parked(e.j) and redis.call('XLEN', stream) == 0 then
    redis.call('DEL', stream)
    redis.call('SREM', K_PARKED, e.j)
  end
end

-- one by one, and no more once so many bytes were seen: each look copies the entry's whole payload
local at, num_seen, num_bytes, num_ended = ARGV[3], 0, 0, 0
while at ~= '' and num_seen < most and num_bytes < MAX_BYTES do
  local row = redis.call('XRANGE', stream, '(' .. at, '+', 'COUNT', 1)[1]
  at = row and row[1] or ''
  if row then
    local e = table_of(row[2])
    num_seen, num_bytes = num_seen + 1, num_bytes + #(e.d or '') + #(e.p or '') + #(e.a or '')
    if is_whole(e) and is_late(e.h) and not is_held(at) then
      finish(at, e)
      num_ended = num_ended + 1
    end
  end
end
write_counts()
return {num_ended, at, num_seen}
