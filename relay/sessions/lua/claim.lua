-- name: claim
-- Takes session keys over: one atomic step, so of several new connections the last claim wins.
-- KEYS: relay:sessions, a key that never exists. ARGV: boot id, life in seconds and maximum number
-- of the remembered sessions of a twin (above it the older half is removed), then for each claim:
-- session key, since, remote. Returns for each claim its epoch and the former entry, or ''.
-- The DEL comes first because it is never refused: a script whose first write is allowed may
-- continue to write when Redis is out of memory, and signing in must work then, so that queues can
-- be drained. With a full disk (MISCONF) it is refused like all writes: then the claims are not
-- entered, and only their evicts take effect; the holder enters itself once there is room
-- (hold.lua). Messages that the client gets then cannot be removed either.
-- Sessions are remembered by pcall: a foreign value in that key must not stop other claims.
local wrote = redis.pcall('DEL', KEYS[2])
local refused = type(wrote) == 'table' and wrote.err
if refused and not string.find(refused, 'MISCONF', 1, true) then return wrote end
local time, answers = redis.call('TIME'), {}
local now = time[1] * 1000000 + time[2]
for claim = 4, #ARGV, 3 do
  local text = ARGV[claim]
  local former = redis.call('HGET', KEYS[1], text) or ''
  local epoch = now
  local stored = tonumber(string.match(former, '^%d+') or '0')
  if stored >= epoch then epoch = stored + 1 end
  epoch = string.format('%.0f', epoch)
  if not refused then
    local entry = table.concat({epoch, ARGV[1], ARGV[claim + 1], ARGV[claim + 2]}, ' ')
    redis.call('HSET', KEYS[1], text, entry)
    local known = 'relay:known:' .. string.match(text, '^%d*')
    local added = redis.pcall('HSET', known, text, time[1])
    if type(added) == 'number' then redis.call('EXPIRE', known, ARGV[2]) end
    if added == 1 and redis.call('HLEN', known) > tonumber(ARGV[3]) then
      local fields, times = redis.call('HGETALL', known), {}
      for place = 2, #fields, 2 do times[#times + 1] = tonumber(fields[place]) end
      table.sort(times)
      for place = 2, #fields, 2 do
        if tonumber(fields[place]) <= times[math.floor(#times / 2)] and fields[place - 1] ~= text then
          redis.call('HDEL', known, fields[place - 1])
        end
      end
    end
  end
  redis.call('PUBLISH', 'wake:' .. text, 'evict ' .. epoch)
  answers[#answers + 1] = epoch
  answers[#answers + 1] = former
end
return answers
