-- name: held
-- Counts waiting messages by source and destination: the hash of a queue has the counts of each
-- source in it, the hash of a twin what it has waiting as a source, and what waits for it. All
-- hashes of a queue change together, so that what is given back is what was charged, even if a
-- process is killed.
-- KEYS: relay:sessions, a key that never exists. ARGV: what to do, life of the hashes in s, bytes
-- of a new queue, then
--   charge: for each source of a queue: session key, 1 for a queue that is charged though its
--     session is connected, source twin, messages, bytes. Returns for each whether the session is
--     connected, then for each the present count of the source in the queue; and for each twin that
--     was charged: name of its hash, messages, bytes, queues, queues of sessions that never signed
--     in.
--   settle: session keys, of queues that messages left by other ways than being read: gives back
--     the missing ones, in the proportion of the former counts.
--   release: session keys, of queues that were read until empty.
-- The DEL comes first, as in claim.lua: giving back is never refused.
redis.call('DEL', KEYS[2])
local UNIT = 16777216
local life, new_bytes = ARGV[2], tonumber(ARGV[3])
local names, deltas = {}, {}

local function add(name, messages, bytes, queues, unknown)
  local delta = deltas[name]
  if not delta then
    delta = {0, 0, 0, 0}
    names[#names + 1], deltas[name] = name, delta
  end
  delta[1], delta[2] = delta[1] + messages, delta[2] + bytes
  delta[3], delta[4] = delta[3] + queues, delta[4] + unknown
end

local function text(number) return string.format('%.0f', number) end

local function of_source(twin) return 'relay:from:' .. twin end
local function of_queue(key) return 'relay:to:' .. string.match(key, '^%d*') end

local function leave(key, left)
  local hash = 'relay:held:' .. key
  local fields = redis.call('HGETALL', hash)
  local total, unknown = 0, 0
  for place = 1, #fields, 2 do
    if fields[place] == 'unknown' then unknown = 1
    else total = total + tonumber(fields[place + 1]) % UNIT end
  end
  if #fields == 0 or (left > 0 and total <= left) then return end
  local kept = 0
  for place = 1, #fields, 2 do
    local twin = fields[place]
    if twin ~= 'unknown' then
      local packed = tonumber(fields[place + 1])
      local messages, bytes = packed % UNIT, math.floor(packed / UNIT)
      local some = math.floor(messages * left / total)
      local some_bytes = some > 0 and math.floor(bytes * left / total) or 0
      kept = kept + some
      if some > 0 then redis.call('HSET', hash, twin, text(some_bytes * UNIT + some))
      else redis.call('HDEL', hash, twin) end
      add(of_source(twin), some - messages, some_bytes - bytes, some > 0 and 0 or -1, 0)
      add(of_queue(key), some - messages, some_bytes - bytes, 0, 0)
    end
  end
  if kept == 0 then
    redis.call('DEL', hash)
    add(of_queue(key), 0, 0, -1, -unknown)
  end
end

local answers = {}
if ARGV[1] == 'charge' then
  local long = {}
  for place = 4, #ARGV, 5 do
    local key, always, twin = ARGV[place], ARGV[place + 1] == '1', ARGV[place + 2]
    local messages, bytes = tonumber(ARGV[place + 3]), tonumber(ARGV[place + 4])
    local hash = 'relay:held:' .. key
    local connected = redis.call('HEXISTS', KEYS[1], key)
    if always or connected == 0 then
      local queues, unknown = 0, 0
      if redis.call('EXISTS', hash) == 0 then
        queues, bytes = 1, bytes + new_bytes
        if connected == 0
            and redis.call('HEXISTS', 'relay:known:' .. string.match(key, '^%d*'), key) == 0 then
          unknown = 1
          redis.call('HSET', hash, 'unknown', '1')
        end
      end
      local first = 1 - redis.call('HEXISTS', hash, twin)
      redis.call('HINCRBY', hash, twin, text(bytes * UNIT + messages))
      redis.call('EXPIRE', hash, life)
      add(of_source(twin), messages, bytes, first, 0)
      add(of_queue(key), messages, bytes, queues, unknown)
      if always then long[key] = true end
    end
    answers[#answers + 1] = connected
  end
  for key in pairs(long) do leave(key, redis.call('XLEN', 'stream:' .. key)) end
  for place = 4, #ARGV, 5 do
    local share = redis.call('HGET', 'relay:held:' .. ARGV[place], ARGV[place + 2])
    answers[#answers + 1] = share or '0'
  end
else
  for place = 4, #ARGV do
    local left = 0
    if ARGV[1] == 'settle' then left = redis.call('XLEN', 'stream:' .. ARGV[place]) end
    leave(ARGV[place], left)
  end
end

local charged = {}
for _, name in ipairs(names) do
  local delta, now = deltas[name], {}
  for place, field in ipairs({'messages', 'bytes', 'queues', 'unknown'}) do
    now[place] = redis.call('HINCRBY', name, field, text(delta[place]))
  end
  if now[3] <= 0 then
    redis.call('DEL', name)
    now = {0, 0, 0, 0}
  else
    redis.call('EXPIRE', name, life)
  end
  charged[#charged + 1] = {name, unpack(now)}
end
return {answers, charged}
