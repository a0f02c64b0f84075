-- Documents that are answered in parts: each part is a document of a job of its own, `<job>~<request>`.

-- The jobs of parts of a job's documents, but those that are gone or cancelled.
local function parts_jobs_of(job)
  local is_read, all = pcall(redis.call, 'HVALS', k_splits(job))
  local there = {}
  for _, parts in ipairs(is_read and all or {}) do
    if is_wanted(parts) then there[#there + 1] = parts end
  end
  return there
end

-- What became of a part: its number, its answer's bytes, and its failure if it has one.
local function part_of(job, result)
  local number = tonumber(cmsgpack.unpack(result.h).custom_id)
  local body = result.b
  if result.s then body = redis.call('HGET', k_bodies(job), result.s) end
  -- an answer may be a zstd frame, which no script can read; failures are short
  local is_read, fields = pcall(cmsgpack.unpack, body)
  local failure = is_read and type(fields) == 'table' and fields.error
  if failure then failure.number, failure.how = number, result.d end
  return number, body, failure
end

-- The answers to a job's parts in order; or nil, and what became of the first that has none: its number,
-- failure's code and message, and how that came about.
local function answers_of(job, num_parts)
  local bodies, failures, answers = {}, {}, {}
  for _, row in ipairs(redis.call('XRANGE', k_results(job), '-', '+')) do
    local number, body, failure = part_of(job, table_of(row[2]))
    bodies[number], failures[number] = body, failure
  end
  for number = 1, num_parts do
    if failures[number] then return nil, failures[number] end
    if not bodies[number] then
      return nil, {number = number, code = 'result_expired', message = 'its answer is gone', how = 'run'}
    end
    answers[number] = bodies[number]
  end
  return answers
end

-- Ends a document some of whose parts have no answer: as the first of them ended.
local function fail_whole(e, stream, job, c, lacking)
  local message = string.format('part %d of %d: %s', lacking.number, c.submitted, lacking.message or '')
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
  pcall(redis.call, 'HDEL', k_splits(c.parent), cmsgpack.unpack(e.h).custom_id)
  if not is_entry_wanted(e) then
    drop_unwanted(e, stream)
  else
    local answers, lacking = answers_of(job, c.submitted)
    if lacking then
      fail_whole(e, stream, job, c, lacking)
    else
      local framed = {}
      for at, body in ipairs(answers) do framed[at] = struct.pack('>I4', #body) .. body end
      e.a, e.l, e.n = table.concat(framed), (tonumber(e.l) or 0) + 1, 1
      redis.call('XADD', stream, '*', unpack(flat_of(e)))
    end
  end
  redis.call('DEL', k_whole(job))
  -- of a cancelled one, entries may lie somewhere that must find it
  if c.left == 0 then redis.call('DEL', unpack(keys_of_job(job))) end
end
