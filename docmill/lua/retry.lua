-- Gives dead letters another series of deliveries: takes the failed result away, lets the job take
-- results again and puts the entry back where it came from.
-- ARGV: ids of dead letters
-- Returns per id: 'OK', 'GONE' (there is no such letter: retried or dropped before), 'EXPIRED' (its job is
-- gone or was cancelled), 'MALFORMED' (its fields do not tell whose document it is), or 'FULL'.
local b = redis.call('HMGET', K_BACKLOG, 'docs', 'bytes', 'max_docs', 'max_bytes')
local free_docs = tonumber(b[3] or DEFAULT_MAX_DOCS) - tonumber(b[1] or 0)
local free_bytes = tonumber(b[4] or DEFAULT_MAX_BYTES) - tonumber(b[2] or 0)

local function is_ours(stream)
  local function starts(with) return string.sub(stream, 1, #with) == with end
  return starts(k_intake('')) or starts(P .. ':ready:')
end

local function put_back(id, e)
  local line = string.format('%s %s after %s deliveries, last %s: %s', id, e.reason, e.n, e.consumer,
    string.gsub(e.error or '', '%c', ' '))
  local before = e.history or ''
  redis.call('XDEL', K_DEAD, id)
  if redis.call('XDEL', k_results(e.j), e.result) == 1 then count(e.j, 'failed', 0 - 1) end
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
  if not (is_whole(e) and e.result and is_ours(e.stream)) then return 'MALFORMED' end
  if e.result == '' or not is_wanted(e.j) then return 'EXPIRED' end
  if free_docs < 1 or free_bytes < tonumber(e.b) then return 'FULL' end
  free_docs, free_bytes = free_docs - 1, free_bytes - tonumber(e.b)
  put_back(id, e)
  return 'OK'
end

local verdicts = {}
for at, id in ipairs(ARGV) do verdicts[at] = retry(id) end
write_counts()
return verdicts
