-- Documents that are answered in parts: each part is a document of a job of its own, `<job>~<request>`.
-- The results of a job's parts: their bodies by number, and the number of the first that has no answer,
-- its failure's code and message, and how its result came about.
local function parts_of(job, num_parts)
  local bodies, lacking = {}, nil
  for _, row in ipairs(redis.call('XRANGE', k_results(job), '-', '+')) do
    local result = table_of(row[2])
    local number = tonumber(cmsgpack.unpack(result.h).custom_id)
    local body = result.s and redis.call('HGET', k_bodies(job), result.s) or result.b
    bodies[number] = body
    -- an answer may be a zstd frame, which no script can read; failures are short
    local is_read, fields = pcall(cmsgpack.unpack, body)
    local failure = is_read and type(fields) == 'table' and fields.error
    if failure and (not lacking or number < lacking.number) then
      lacking = {number = number, code = failure.code, message = failure.message, how = result.d}
    end
  end
  if not lacking and #bodies < num_parts then
    lacking = {number = #bodies + 1, code = 'result_expired', message = 'its answer is gone', how = 'run'}
  end
  return bodies, lacking
end

-- Ends a document some of whose parts have no answer: as the first of them ended.
local function fail_whole(e, stream, job, c, lacking)
  local message = string.format('part %d of %d: %s', lacking.number, c.submitted, lacking.message)
  local outcome = lacking.code == 'expired' and 'expired' or 'failed'
  local body = cmsgpack.pack({v = 2, outcome = outcome, error = {code = lacking.code, message = message}})
  if outcome == 'failed' and lacking.how ~= 'rejected' then
    local of_part = redis.call('HMGET', k_job(job), 'consumer', 'trace')
    return bury(stream, of_part[1] or '', e, lacking.code, body, message, of_part[2] or '')
  end
  settle(e.j, outcome, e.h, body, 'rejected', false)
  leave_backlog(e.b)
end

-- All parts of a document have ended: back to preprocessing it goes, with their answers.
take_together = function(job)
  local c = counters(job)
  local e = table_of(redis.call('HGETALL', k_whole(job)))
  local stream = e.stream
  e.stream = nil
  if not is_whole(e) then return end -- somebody took it away
  redis.call('HDEL', k_splits(c.parent), cmsgpack.unpack(e.h).custom_id)
  if not is_entry_wanted(e) then
    drop_unwanted(e, stream)
  else
    local bodies, lacking = parts_of(job, c.submitted)
    if lacking then
      fail_whole(e, stream, job, c, lacking)
    else
      local framed = {}
      for at, body in ipairs(bodies) do framed[at] = struct.pack('>I4', #body) .. body end
      e.a, e.l, e.n = table.concat(framed), (tonumber(e.l) or 0) + 1, 1
      redis.call('XADD', stream, '*', unpack(flat_of(e)))
    end
  end
  redis.call('DEL', k_whole(job))
  -- of a cancelled one, entries may lie somewhere that must find it
  if c.left == 0 then redis.call('DEL', unpack(keys_of_job(job))) end
end
