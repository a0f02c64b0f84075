-- The answers kept for later duplicates.

-- What Redis takes for an answer beside its bytes: three keys' worth of its fingerprint. Measured.
local ANSWER_OVERHEAD = 800

-- Forgets answers and what is written down of them; returns the bytes that this frees.
local function forget_answers(fps)
  local freed = 0
  for at, bytes in ipairs(redis.call('HMGET', K_ANSWER_BYTES, unpack(fps))) do
    freed = freed + (tonumber(bytes) or 0)
    redis.call('DEL', k_cached(fps[at]))
  end
  redis.call('HDEL', K_ANSWER_BYTES, unpack(fps))
  redis.call('ZREM', K_ANSWERS, unpack(fps))
  note('answer_bytes', 0 - freed)
  return freed
end

-- Forgets the least recently used answers until all take at most `max_bytes`, some hundred at a time.
local function evict_answers(bytes, max_bytes, most)
  local num_evicted = 0
  while bytes > max_bytes and num_evicted < most do
    local oldest, fps = redis.call('ZRANGE', K_ANSWERS, 0, 15), {}
    if #oldest == 0 then break end
    for at, size in ipairs(redis.call('HMGET', K_ANSWER_BYTES, unpack(oldest))) do
      if bytes <= max_bytes then break end
      bytes = bytes - (tonumber(size) or 0)
      fps[at] = oldest[at]
    end
    forget_answers(fps)
    num_evicted = num_evicted + #fps
  end
  if num_evicted > 0 then note('evicted', num_evicted) end
  return num_evicted
end

-- Notes that these are used now; returns how many were not kept before.
local function touch_answers(fps)
  local at, scored = string.format('%.6f', now_s()), {} -- a number would be spelled out anew for each
  for number, fp in ipairs(fps) do
    scored[2 * number - 1], scored[2 * number] = at, fp
  end
  return redis.call('ZADD', K_ANSWERS, unpack(scored))
end

-- Remembers answers for later duplicates; `bodies`: by fingerprint. One that would push out all others is
-- not kept.
local function remember_answers(bodies, ttl_s, max_bytes)
  local fps, sizes, num, added = {}, {}, 0, 0
  for fp, body in pairs(bodies) do
    local size = #body + ANSWER_OVERHEAD
    if size <= max_bytes then
      redis.call('SET', k_cached(fp), body, 'EX', ttl_s)
      num, added = num + 1, added + size
      fps[num], sizes[2 * num - 1], sizes[2 * num] = fp, fp, size
    end
  end
  if num == 0 then return end
  if touch_answers(fps) < num then
    for _, bytes in ipairs(redis.call('HMGET', K_ANSWER_BYTES, unpack(fps))) do
      added = added - (tonumber(bytes) or 0)
    end
  end
  redis.call('HSET', K_ANSWER_BYTES, unpack(sizes))
  note('answer_bytes', added)
  local before = tonumber(redis.call('HGET', K_SHARING, 'answer_bytes') or 0) or 0
  if before + added > max_bytes then evict_answers(before + added, max_bytes, 1000) end
end
