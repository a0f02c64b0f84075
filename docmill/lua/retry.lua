-- Gives dead letters another series of deliveries: takes the failed result away, lets the job take
-- results again and puts the entry back where it came from.
-- ARGV: ids of dead letters
-- Returns per id: 'OK', 'GONE' (there is no such letter: retried or dropped before), 'EXPIRED' (its job is
-- gone, or it was cancelled), 'MALFORMED' (its fields do not tell whose document it is), or 'FULL'.
local b = redis.call('HMGET', K_BACKLOG, 'docs', 'bytes', 'max_docs', 'max_bytes')
local docs, bytes = tonumber(b[1] or 0), tonumber(b[2] or 0)
local max_docs = tonumber(b[3] or DEFAULT_MAX_DOCS)
local max_bytes = tonumber(b[4] or DEFAULT_MAX_BYTES)

local function is_ours(stream)
  return stream and (starts_with(stream, k_intake('')) or starts_with(stream, P .. ':ready:'))
end

-- Whether its document is still in the job as a failed one: a job id may have been used anew meanwhile.
local function is_failed(e)
  return e.result ~= '' and is_entry_wanted(e) and fields_of(k_results(e.j), e.result)
end

local function is_letter(e)
  return is_whole(e) and is_ours(e.stream) and e.result
    and (e.result == '' or string.match(e.result, '^%d+%-%d+$'))
end

local function put_back(id, e)
  local line = string.format('%s %s after %s deliveries, last %s: %s', id, e.reason or '', e.n,
    e.consumer or '',
    string.gsub(e.error or '', '%c', ' '))
  local before = e.history or ''
  redis.call('XDEL', K_DEAD, id)
  redis.call('XDEL', k_results(e.j), e.result)
  count(e.j, 'failed', 0 - 1)
  redis.call('HSET', k_history(e.j), e.i, before == '' and line or before .. '\n' .. line)
  reopen(e.j)
  enter_backlog(e.b)
  local stream = e.stream
  for name in pairs(NOT_PAYLOAD) do e[name] = nil end
  e.n = 1
  redis.call('XADD', stream, '*', unpack(flat_of(e)))
end

local function retry(id)
  local e = fields_of(K_DEAD, id)
  if not e then return 'GONE' end
  if not is_letter(e) then return 'MALFORMED' end
  if not is_failed(e) then return 'EXPIRED' end
  -- as submit.lua has it: an empty backlog takes any one document
  if docs >= max_docs or (docs > 0 and bytes + e.b > max_bytes) then return 'FULL' end
  docs, bytes = docs + 1, bytes + e.b
  put_back(id, e)
  return 'OK'
end

local verdicts = {}
for at, id in ipairs(ARGV) do verdicts[at] = retry(id) end
write_counts()
return verdicts
